// A web application of Node.js that knows nothing of pseudonyms. It takes a port, or takes one that is free, and prints it.
import { createHash } from 'node:crypto'
import { createServer } from 'node:http'
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib'

const requests = []
let events // the response that waits for more
const packs = { gzip: gzipSync, br: brotliCompressSync, deflate: deflateSync }

// A page that uses a WebSocket, events and an upload, and says in its title what came.
const live = `<!DOCTYPE html><link rel="icon" href="data:,"><script>
const socket = () => new Promise((resolve, reject) => {
  const one = new WebSocket('wss://' + location.host + '/socket')
  one.onopen = () => one.send('hello')
  one.onmessage = (event) => resolve(event.data)
  one.onerror = reject
})
const events = () => new Promise((resolve, reject) => {
  const got = []
  const source = new EventSource('/events')
  source.onmessage = (event) => {
    got.push(event.data)
    if (got.length === 1) fetch('/poke')
    else resolve(got.join(' '), source.close())
  }
  source.onerror = reject
})
const upload = async () => (await (await fetch('/upload', { method: 'PUT', body: new Blob([new Uint8Array(20_000_000)]) })).text()).split(' ')[0]
addEventListener('load', async () => {
  const found = []
  for (const one of [socket, events, upload]) found.push(await one().catch((error) => error))
  document.title = 'live: ' + found.join(', ')
})
</script>`

const pages = {
  '/'(request, response) {
    const text = `<a href="https://${request.headers.host}/next">next</a><form action="http://${request.headers.host}/form" method="post"></form>`
    const encoding = new URL(request.url, 'http://x').searchParams.get('encoding')
    response.setHeader('Content-Type', 'text/html')
    if (encoding) response.setHeader('Content-Encoding', encoding)
    response.end(packs[encoding]?.(text) ?? text)
  },
  '/live'(request, response) { response.setHeader('Content-Type', 'text/html').end(live) },
  '/requests'(request, response) { response.end(JSON.stringify(requests)) },
  '/headers'(request, response) { response.end(JSON.stringify(request.headers)) },
  '/events'(request, response) {
    response.writeHead(200, { 'Content-Type': 'text/event-stream' })
    response.write('data: first\n\n')
    events = response
  },
  '/poke'(request, response) {
    events.end('data: second\n\n')
    response.end()
  },
  async '/upload'(request, response) {
    const hash = createHash('sha256')
    let size = 0
    for await (const part of request) {
      size += part.length
      hash.update(part)
    }
    response.end(`${request.headers.expect ?? ''} ${size} ${hash.digest('hex')}`.trim())
  },
  '/refuse'(request, response) { response.writeHead(413, { Connection: 'close' }).end('too large') },
  '/login'(request, response) {
    if (request.headers.authorization === 'Basic ' + btoa('alice:secret')) response.end('welcome')
    else response.writeHead(401, { 'WWW-Authenticate': 'Basic realm="app"' }).end('who are you?')
  },
  '/form'(request, response) {
    request.resume()
    response.writeHead(303, { Location: `https://${request.headers.host}/done`, 'Set-Cookie': `session=1; Domain=${request.headers.host}; Path=/; HttpOnly` }).end()
  },
  '/hints'(request, response) {
    response.writeEarlyHints({ link: `<https://${request.headers.host}/style.css>; rel=preload; as=style` }, () => response.end('hinted'))
  },
  '/endless'(request, response) {
    response.setHeader('Content-Type', 'text/html')
    const part = '<p><a href="//' + request.headers.host + '/">x</a>'.repeat(1000)
    const more = () => { while (!response.destroyed && response.write(part)); }
    response.on('drain', more).on('close', () => requests.push('endless is closed'))
    more()
  },
}

const server = createServer((request, response) => {
  requests.push(`${request.method} ${request.url}`)
  const page = pages[new URL(request.url, 'http://x').pathname]
  if (page) page(request, response)
  else response.writeHead(404).end()
})

// An echo of WebSocket messages under 126 bytes (RFC 6455, section 5.2).
server.on('upgrade', (request, socket) => {
  requests.push(`${request.method} ${request.url}`)
  const accept = createHash('sha1').update(request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64')
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\nX-Origin: ${request.headers.origin}\r\n\r\n`)
  let held = Buffer.alloc(0)
  socket.on('error', () => {}).on('data', (data) => {
    held = Buffer.concat([held, data])
    while (held.length > 6 && held.length >= 6 + (held[1] & 127)) {
      const size = held[1] & 127
      const text = held.subarray(6, 6 + size).map((byte, i) => byte ^ held[2 + (i % 4)])
      if ((held[0] & 15) === 8) return socket.end(Buffer.from([0x88, 0]))
      socket.write(Buffer.concat([Buffer.from([held[0], size]), text]))
      held = held.subarray(6 + size)
    }
  })
})
server.listen(Number(process.argv[2] ?? 0), '127.0.0.1', () => console.log(server.address().port))
