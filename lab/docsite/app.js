// What a page does at each visit: it restores the session, shows what was read last, makes the search work, and reports the visit.
'use strict'

// Bytes of reports, which the site reads alone, and of the numbers of requests.
const batchBytes = 2400
const openBytes = 800
const nonceBytes = 96

async function json(url, options) {
  const response = await fetch(url, options)
  if (!response.ok) throw new Error(`${url}: ${response.status}`)
  return response.json()
}

// token is random, in base64.
const token = (bytes) => btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(bytes))))

// nonce is a token for URLs. It has a character that base64 has in URLs alone.
function nonce(bytes) {
  for (;;) {
    const text = token(bytes).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '')
    if (/[-_]/.test(text)) return text
  }
}

function list(id, pages) {
  document.getElementById(id).replaceChildren(...pages.map((page) => {
    const link = Object.assign(document.createElement('a'), { href: page.page, textContent: page.title })
    const item = document.createElement('li')
    item.append(link)
    return item
  }))
}

const report = (url, kind, bytes) => json(url, { method: 'POST', headers: { 'Content-Type': 'application/json' },
  body: JSON.stringify({ kind, batch: token(bytes) }) })

// show loads the pictures. Each visit asks for its own.
function show() {
  return Promise.all([...document.querySelectorAll('img[data-src]')].map((image) => {
    image.src = image.dataset.src + '?request=' + nonce(nonceBytes)
    return image.decode()
  }))
}

async function start() {
  const { session } = await json('/api/session?request=' + nonce(nonceBytes))
  sessionStorage.setItem('session', session)
  const shown = show()
  const [{ recent }, { pages }] = await Promise.all([json('/api/recent'), json('/api/search')])
  list('recent', recent)
  document.getElementById('search').addEventListener('input', (event) => {
    const word = event.target.value.toLowerCase()
    list('found', pages.filter((page) => word && [page.title, ...page.headings ?? []].some((text) => text.toLowerCase().includes(word))))
  })
  await report('/api/open', 'open', openBytes)
  await shown
  const { next } = await report('/api/event', 'view', batchBytes)
  sessionStorage.setItem('next', next)
  document.documentElement.dataset.ready = 'yes'
}

start()
