// The Service Worker of the page defence: it fetches what the site's pages load in pieces that the sidecar pads.
const MOST = 1 // the largest number of pieces; the sidecar sets it
const UNITS = false // objects come in as many units as they take, and each page in as many as any other; the sidecar sets it
const QUIET = 100 // ms without a request after which a page has loaded
const PATIENCE = 1000 // the same if such a page needed more before, or nobody opened it before
const STREAM = 30000 // the same if a large object is on its way: its end often starts other requests
const LANES = 8 // units at a time that a page fetches, if it is known how many it needs
const PLAIN = '/.well-known/heddle/plain'
const HEADER = 'Heddle-Piece'
const PAGE = 'Heddle-Page'
const LOAD = 'Heddle-Load'

self.addEventListener('install', () => self.skipWaiting())
self.addEventListener('activate', (event) => event.waitUntil(self.registration.navigationPreload.enable().then(() => self.clients.claim())))
self.addEventListener('fetch', (event) => {
  const request = event.request
  const { origin, pathname } = new URL(request.url)
  if (pathname === PLAIN) {
    event.respondWith(plain(event))
    return
  }
  const live = (request.headers.get('accept') ?? '').includes('text/event-stream')
  if (request.method !== 'GET' || origin !== self.location.origin || request.headers.has('range') || live) return
  const page = pageOf(event.resultingClientId || event.clientId)
  page.open++
  event.respondWith(load(page, request, request.mode === 'navigate' && event.preloadResponse).finally(() => page.open--))
  if (UNITS) event.waitUntil(settle(page))
})

// plain lets the user go on without the defence. The sidecar decides, since a page of another site may have led here.
async function plain(event) {
  const answer = await event.preloadResponse
  if (!answer) return Response.error() // the page did not open this
  if (answer.type === 'opaqueredirect') await self.registration.unregister()
  return answer
}

// Pages that are loading, by the browser's name for them: how many pieces each had, how many of these it needed, how many without content
// came after a pause, how many are on their way, how many such a page needed at most before, how many any page has as far as it knows, the
// sidecar's number of it, how many objects, and large ones, are on their way, and whether settle is at work or has been.
const pages = new Map()

function pageOf(id) {
  if (!pages.has(id)) {
    pages.set(id, { had: 0, needed: 0, late: 0, flying: 0, largest: 0, most: 0, number: 0, open: 0, streams: 0, settles: false, settled: false })
    if (pages.size > 100) pages.delete(pages.keys().next().value)
  }
  return pages.get(id)
}

// settle fetches units without content once a page has loaded, until it had as many units as any other.
async function settle(page) {
  if (page.settles) return
  page.settles = true
  try {
    for (let before = -1, quiet = 0; page.open || quiet < patience(page); before = page.had) {
      await new Promise((resolve) => setTimeout(resolve, QUIET))
      quiet = before === page.had ? quiet + QUIET : 0
    }
    const learn = !page.settled // a page that goes on loading would need more each time
    page.settled = true
    const late = () => { page.late++; return learn ? filler(page, page.needed, page.number) : filler(page, 0) }
    if (learn && page.needed > Math.min(page.largest, page.most - 1)) await late()
    await Promise.all(Array.from({ length: Math.max(0, page.most - page.had) }, late))
  } finally {
    page.settles = false
  }
}

// patience is how many ms without a request say that a page has loaded.
function patience(page) {
  if (page.streams) return STREAM
  return page.needed < page.largest || !page.largest ? PATIENCE : QUIET
}

// filler fetches a unit without content. It tells how many units the page needed, with its number if it has loaded, and learns how many a page
// has.
async function filler(page, needed, number = 0) {
  page.had++
  page.flying++
  try {
    const response = await fetch('/.well-known/heddle/pad', { headers: { [HEADER]: `${newID()} 0 ${digits(needed)} pad ${digits(number)}` }, credentials: 'same-origin', cache: 'no-store' })
    await response.arrayBuffer()
    page.most = Number(response.headers.get(HEADER))
  } finally {
    landed(page)
  }
}

// spread fetches units without content while the page fetches few others. After a pause they would show how many it needed. It leaves room for as
// many as such a page ever needed, and for one of settle, which tells how many that were.
function spread(page) {
  const room = page.largest && page.most - 1 - Math.max(0, page.largest - page.needed)
  while (page.flying < LANES && page.had < room) filler(page, page.settled ? 0 : page.needed).catch(() => {}) // settle fetches another one
}

function landed(page) {
  page.flying--
  spread(page)
}

// digits writes all numbers with one length.
function digits(number) {
  return String(number).padStart(4, '0')
}

const HEX = Array.from({ length: 256 }, (_, b) => b.toString(16).padStart(2, '0'))
const random = new Uint8Array(1024)
let used = random.length

// draws returns so many random bytes. It gets many at once, since the cost is that of the call.
function draws(count) {
  if (used + count > random.length) {
    crypto.getRandomValues(random)
    used = 0
  }
  return random.subarray(used, used += count)
}

function newID() {
  let id = ''
  for (const b of draws(16)) id += HEX[b]
  return id
}

// load returns what the site's server answered. It follows redirects within the site itself: a browser would fetch what they lead to whole. preload is
// of a page or frame that opens: the browser's own request, which shows the sidecar whether another site leads here. What the worker asks for would
// look like the site's own.
async function load(page, request, preload, url = request.url, hops = 0) {
  const all = await pieces(page, request, preload, url)
  const strange = all.find((p) => p.response)
  if (strange) return strange.response
  const stream = all.find((p) => p.rest)
  const { status, headers } = (stream ?? all[0]).meta
  const location = headers.find(([name]) => name.toLowerCase() === 'location')
  if ([301, 302, 303, 307, 308].includes(status) && location) {
    const next = new URL(location[1], url)
    const follow = request.redirect === 'follow' && next.origin === self.location.origin && hops < 20
    return follow ? load(page, request, false, next.href, hops + 1) : Response.redirect(next, status)
  }
  const encoded = headers.some(([name, value]) => name.toLowerCase() === 'content-encoding' && value.toLowerCase() === 'gzip')
  // As a stream it reaches the page without the browser's process, where blobs and buffers are kept.
  let body = stream ? stream.rest : new ReadableStream({ start(to) { for (const p of all) to.enqueue(p.content); to.close() } })
  if (encoded) body = body.pipeThrough(new DecompressionStream('gzip'))
  const bodiless = [101, 204, 205, 304].includes(status)
  return new Response(bodiless ? null : body, { status, headers: headers.filter(([name]) => name.toLowerCase() !== 'content-encoding') })
}

// pieces fetches all pieces of an object. The first one is all of preload, whose sidecar drew the number.
async function pieces(page, request, preload, url) {
  let [id, count] = [newID(), UNITS ? 0 : draw()]
  const ask = asker(request, url)
  const some = (from, to) => Promise.all(Array.from({ length: to - from }, (_, i) => piece(page, ask(`${id} ${count} ${digits(from + i)}`))))
  if (!preload && !UNITS) return some(0, count)
  const [first] = preload ? [await piece(page, preload)] : await some(0, 1)
  if (first.response || first.rest) return [first]
  if (preload) [id, count] = [first.load[0], Number(first.load[1])]
  if (UNITS !== !count) return [{ response: new Response('the page defence of this site is another one now; load this page again', { status: 400 }) }]
  return [first, ...await some(1, UNITS ? first.units : count)]
}

// draw returns a number of pieces, each as likely as any other.
function draw() {
  for (;;) {
    const [byte] = draws(1)
    if (byte < 256 - (256 % MOST)) return 1 + (byte % MOST)
  }
}

// asker returns what fetches one piece of an object. It reads the request once for all of them, since the browser computes each property anew.
function asker(request, url) {
  const headers = new Headers(request.headers), purpose = `${request.mode} ${request.destination || 'empty'}`
  const how = {
    headers, credentials: 'same-origin', cache: 'no-store', redirect: 'manual', referrer: request.referrer, referrerPolicy: request.referrerPolicy, signal: request.signal,
  }
  return (which) => {
    headers.set(HEADER, `${which} ${purpose}`) // fetch takes a copy
    return fetch(url, how)
  }
}

// piece is what the answer to a request for one has.
async function piece(page, answer) {
  page.had++
  page.needed++
  page.flying++
  try {
    return await read(page, await answer)
  } finally {
    landed(page)
  }
}

// read reads a piece: the length of a description and of the content (32 bits each), both, and padding. If something else than a piece comes, it is
// the response. Without an answer, since the browser asked for nothing itself, the page does not open.
async function read(page, response) {
  if (!response) return { response: Response.error() }
  const header = response.headers.get(HEADER)
  if (header === null) return { response }
  const units = Number(header)
  const [largest, most, number] = (response.headers.get(PAGE) ?? '0 0 0').split(' ').map(Number)
  if (number) {
    Object.assign(page, { largest, most, number })
    spread(page)
  }
  if (!units) { // content that goes on to the end
    const input = new Input(response.body.getReader())
    const view = new DataView((await input.take(8)).buffer)
    return { meta: parse(await input.take(view.getUint32(0))), rest: input.rest(page) }
  }
  const all = await response.arrayBuffer()
  const view = new DataView(all)
  const from = 8 + view.getUint32(0)
  return { meta: parse(new Uint8Array(all, 8, from - 8)), content: new Uint8Array(all, from, view.getUint32(4)), units, load: (response.headers.get(LOAD) ?? '').split(' ') }
}

const decoder = new TextDecoder()

function parse(text) {
  return JSON.parse(decoder.decode(text))
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

  // rest is the stream of what follows, which is on its way until it ends.
  rest(page) {
    const { reader, held } = this
    page.streams++
    return new ReadableStream({
      start(controller) { if (held.length) controller.enqueue(held) },
      async pull(controller) {
        const { done, value } = await reader.read().catch((error) => { page.streams--; throw error })
        if (!done) return controller.enqueue(value)
        page.streams--
        controller.close()
      },
      cancel(reason) { page.streams--; return reader.cancel(reason) },
    })
  }
}
