// The reference PLC directory and PDSes on loopback, in one process. Started by scripts/testnet
// with one argument, its settings as JSON; prints one line of JSON or a page for people when all
// of it answers, and runs until it is ended.

import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import fs from 'node:fs'
import { createRequire } from 'node:module'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const settings = JSON.parse(process.argv[2])

/** A package of the cache folder: this file does not live beside its node_modules. */
function load(name) {
  const require = createRequire(path.join(settings.packages, 'package.json'))
  return import(pathToFileURL(require.resolve(name)))
}

/** Sockets on a port of 127.0.0.1 and, where there is IPv6, on the same one of ::1. Held from
 * the choice of the port on, as the services must know their URL before they listen. */
async function bindLoopback(wanted) {
  for (let tries = 0; ; tries++) {
    const v4 = net.createServer().listen(wanted, '127.0.0.1')
    await once(v4, 'listening')
    const { port } = v4.address()
    const v6 = net.createServer({ allowHalfOpen: true, noDelay: true }).listen(port, '::1')
    try {
      await once(v6, 'listening')
      return { port, v4, v6 }
    } catch (error) {
      if (['EADDRNOTAVAIL', 'EAFNOSUPPORT'].includes(error.code)) return { port, v4 }
      v4.close()
      if (wanted || tries === 20) throw error
    }
  }
}

/** Starts a service that passes its port to listen(), on sockets held for it. */
async function startOn(sockets, service) {
  const server = await service.start()
  sockets.v6?.on('connection', (socket) => server.emit('connection', socket))
  if (settings.clockSkew) {
    // Node's own Date header does not come from globalThis.Date.
    server.prependListener('request', (_, response) =>
      response.setHeader('Date', new Date().toUTCString()),
    )
  }
  return {
    url: `http://localhost:${sockets.port}`,
    end: () => {
      sockets.v6?.close()
      return service.destroy()
    },
  }
}

async function startPlc() {
  const { default: plc } = await load('@did-plc/server')
  const sockets = await bindLoopback(settings.plcPort)
  const service = plc.PlcServer.create({ db: plc.Database.mock(), port: sockets.v4 })
  return startOn(sockets, service)
}

async function startPds({ port, domain }, plcUrl, adminPassword, directory) {
  const { PDS } = await load('@atproto/pds')
  const sockets = await bindLoopback(port)
  const blobs = path.join(directory, 'blobs')
  fs.mkdirSync(blobs, { recursive: true })
  const service = await PDS.fromEnv({
    port: sockets.port,
    hostname: 'localhost',
    serviceHandleDomains: [domain],
    devMode: true,
    disableSsrfProtection: true,
    inviteRequired: false,
    didPlcUrl: plcUrl,
    dataDirectory: directory,
    blobstoreDiskLocation: blobs,
    blobUploadLimit: settings.blobLimit ?? undefined,
    rateLimitsEnabled: settings.rateLimits,
    adminPassword,
    jwtSecret: randomBytes(16).toString('hex'),
    plcRotationKeyK256PrivateKeyHex: randomBytes(32).toString('hex'),
    // Configured but down: port 1 (tcpmux) refuses at once.
    ...(settings.appview && {
      bskyAppViewUrl: 'http://localhost:1',
      bskyAppViewDid: 'did:web:appview.invalid',
    }),
  })
  service.ctx.cfg.service.port = sockets.v4 // by now read by nothing but listen()
  return startOn(sockets, service)
}

function skewClock(milliseconds) {
  globalThis.Date = new Proxy(Date, {
    construct: (real, args, target) =>
      Reflect.construct(real, args.length ? args : [real.now() + milliseconds], target),
    apply: (real) => new real(real.now() + milliseconds).toString(),
    get: (real, name) =>
      name === 'now' ? () => real.now() + milliseconds : Reflect.get(real, name),
  })
}

/** Has https://HOST/… answered from another URL: no name on loopback may be an OAuth client's. */
function answerHostsFrom(urls) {
  const real = globalThis.fetch
  globalThis.fetch = (input, init) => {
    const { url, method, headers, redirect, signal } = new Request(input, init)
    const { protocol, host, pathname, search } = new URL(url)
    if (protocol !== 'https:' || !Object.hasOwn(urls, host)) return real(input, init)
    const target = Object.assign(new URL(urls[host]), { pathname, search })
    // Without the caller's dispatcher, which refuses local addresses whatever the settings.
    return real(target, { method, headers, redirect, signal })
  }
}

function forPeople({ plc, pds, adminPassword }, directory) {
  const resolvers = pds.map(({ url }) => url).join(' ')
  return `The network is ready. Ctrl-C ends it${settings.dir ? '' : ' and removes its data'}.

  export KNOTLESS_PLC_URL=${plc}
  export KNOTLESS_HANDLE_RESOLVER='${resolvers}'

${pds.map(({ url, domain }) => `  PDS ${url}: handles under ${domain}`).join('\n')}
  admin password ${adminPassword}, data in ${directory}

To make an account and log in to it:

  curl -sS ${pds[0].url}/xrpc/com.atproto.server.createAccount \\
    -H 'Content-Type: application/json' \\
    -d '{"handle": "alice${pds[0].domain}", "email": "alice@example.com", "password": "secret"}'
  git knotless login alice${pds[0].domain}`
}

async function main() {
  const directory = settings.dir ?? fs.mkdtempSync(path.join(os.tmpdir(), 'knotless-testnet-'))
  if (!settings.dir) {
    process.on('exit', () => fs.rmSync(directory, { recursive: true, force: true }))
  }
  const running = []
  let ending = false
  const end = async () => {
    if (ending) process.exit(130) // asked twice: at once
    ending = true
    await Promise.allSettled(running.map((service) => service.end()))
    process.exit(0)
  }
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, end)
  // Whoever holds the other end of a pipe and dies, even by SIGKILL, closes it.
  const stdin = fs.fstatSync(0)
  if (stdin.isFIFO() || stdin.isSocket()) process.stdin.on('close', end).resume()
  process.stdout.on('error', end)

  if (settings.clockSkew) skewClock(settings.clockSkew * 1000)
  answerHostsFrom(settings.clientMetadata)

  const adminPassword = randomBytes(12).toString('hex')
  const plc = await startPlc()
  running.push(plc)
  const pds = []
  for (const [index, { port, domain }] of settings.pds.entries()) {
    const place = path.join(directory, `pds${index}`)
    const service = await startPds({ port, domain }, plc.url, adminPassword, place)
    running.push(service)
    pds.push({ url: service.url, domain })
  }
  const network = { plc: plc.url, pds, adminPassword }
  console.log(settings.json ? JSON.stringify(network) : forPeople(network, directory))
}

main().catch((error) => {
  const taken = error.code === 'EADDRINUSE'
  console.error(`testnet: ${taken ? `port ${error.port} is already taken` : error.stack}`)
  process.exit(1)
})
