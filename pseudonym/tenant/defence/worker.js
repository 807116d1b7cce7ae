// The Service Worker of the page defence: it fetches what the site's pages load in pieces that the sidecar pads.
const MOST = 1 // the largest number of pieces; the sidecar sets it
const HEADER = 'Heddle-Piece'
const UNBOUNDED = 0xffffffff // the length of content that goes on to the end

self.addEventListener('install', () => self.skipWaiting())
self.addEventListener('activate', (event) => event.waitUntil(self.clients.claim()))
self.addEventListener('fetch', (event) => {
  const request = event.request
  const live = (request.headers.get('accept') ?? '').includes('text/event-stream')
  if (request.method !== 'GET' || new URL(request.url).origin !== self.location.origin || request.headers.has('range') || live) return
  event.respondWith(load(request))
})

// load returns what the site's server answered. It follows redirects within the site itself: a browser would fetch what they lead to whole.
async function load(request, url = request.url, hops = 0) {
  const id = [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, '0')).join('')
  const count = draw()
  const all = await Promise.all(Array.from({ length: count }, (_, i) => piece(request, url, id, count, i)))
  const strange = all.find((p) => p.response)
  if (strange) return strange.response
  const stream = all.find((p) => p.length === UNBOUNDED)
  const { status, headers } = (stream ?? all[0]).meta
  const location = headers.find(([name]) => name.toLowerCase() === 'location')
  if ([301, 302, 303, 307, 308].includes(status) && location) {
    const next = new URL(location[1], url)
    const follow = request.redirect === 'follow' && next.origin === self.location.origin && hops < 20
    return follow ? load(request, next.href, hops + 1) : Response.redirect(next, status)
  }
  const encoded = headers.some(([name, value]) => name.toLowerCase() === 'content-encoding' && value.toLowerCase() === 'gzip')
  let body = stream ? stream.rest : new Blob(all.map((p) => p.content)).stream()
  if (encoded) body = body.pipeThrough(new DecompressionStream('gzip'))
  const bodiless = [101, 204, 205, 304].includes(status)
  return new Response(bodiless ? null : body, { status, headers: headers.filter(([name]) => name.toLowerCase() !== 'content-encoding') })
}

// draw returns a number of pieces, each as likely as any other.
function draw() {
  for (;;) {
    const [byte] = crypto.getRandomValues(new Uint8Array(1))
    if (byte < 256 - (256 % MOST)) return 1 + (byte % MOST)
  }
}

// piece fetches one piece: the length of a description and of the content (32 bits each), both, and padding. If something else than a
// piece comes, it is the response.
async function piece(request, url, id, count, index) {
  const headers = new Headers(request.headers)
  headers.set(HEADER, `${id} ${count} ${index} ${request.mode} ${request.destination || 'empty'}`)
  const response = await fetch(url, {
    headers, credentials: 'same-origin', cache: 'no-store', redirect: 'manual', referrer: request.referrer, referrerPolicy: request.referrerPolicy, signal: request.signal,
  })
  if (!response.headers.has(HEADER)) return { response }
  const input = new Input(response.body.getReader())
  const view = new DataView((await input.take(8)).buffer)
  const meta = JSON.parse(new TextDecoder().decode(await input.take(view.getUint32(0))))
  const length = view.getUint32(4)
  if (length === UNBOUNDED) return { meta, length, rest: input.rest() }
  const content = await input.take(length)
  await input.skip()
  return { meta, length, content }
}

// Input reads from a stream.
class Input {
  constructor(reader) {
    this.reader = reader
    this.held = new Uint8Array(0)
  }

  // take returns so many bytes.
  async take(count) {
    const out = new Uint8Array(count)
    let at = 0
    for (;;) {
      const part = this.held.subarray(0, count - at)
      out.set(part, at)
      at += part.length
      this.held = this.held.subarray(part.length)
      if (at === count) return out
      const { done, value } = await this.reader.read()
      if (done) throw new TypeError('a piece broke off')
      this.held = value
    }
  }

  // skip reads the padding.
  async skip() {
    while (!(await this.reader.read()).done);
  }

  // rest is the stream of what follows.
  rest() {
    const { reader, held } = this
    return new ReadableStream({
      start(controller) { if (held.length) controller.enqueue(held) },
      async pull(controller) {
        const { done, value } = await reader.read()
        if (done) controller.close()
        else controller.enqueue(value)
      },
      cancel(reason) { return reader.cancel(reason) },
    })
  }
}
