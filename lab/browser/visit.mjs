// Visits pages with Chromium and says of each, one JSON object a line, what came of it. The order is JSON on stdin:
// {executable, args, order: {timeout (ms), patience (ms), until, wants: [n, ...], shape, contexts: [[url, ...], ...]}}. Pages of one context follow one another and share its
// connections; contexts run one after the other.
import { readFileSync } from 'node:fs'
import { chromium } from 'playwright-core'

const { executable, args, order } = JSON.parse(readFileSync(0, 'utf8'))
const browser = await chromium.launch({ executablePath: executable, args, timeout: 60_000 })
try {
  for (const urls of order.contexts) {
    const context = await browser.newContext()
    const page = await context.newPage()
    page.setDefaultTimeout(order.timeout)
    for (const [i, url] of urls.entries()) await print(await visit(page, url, order.wants?.[i] ?? order.wants?.at(-1) ?? 0))
    await context.close()
  }
} finally {
  await browser.close()
}

// print waits until all is written: a pipe takes a part of a long line at once.
function print(seen) {
  return new Promise((done) => process.stdout.write(JSON.stringify(seen) + '\n', done))
}

async function visit(page, url, wants) {
  const failed = []
  const flight = new Set() // requests
  const begin = (request) => flight.add(request)
  const end = (request) => flight.delete(request)
  const fail = (request) => { end(request); failed.push(`${request.url()}: ${request.failure()?.errorText}`) }
  const refuse = (response) => { if (!response.ok()) failed.push(`${response.url()}: ${response.status()}`) }
  const errors = []
  const throws = (error) => errors.push(error.message)
  const says = (message) => { if (message.type() === 'error') errors.push(message.text()) }
  const listeners = Object.entries({ request: begin, requestfinished: end, requestfailed: fail, response: refuse, pageerror: throws, console: says })
  for (const [event, listener] of listeners) page.on(event, listener)
  const seen = { url, error: '', responses: [], images: [], styles: 0, shape: '' }
  try {
    await page.goto(url, { waitUntil: order.until, timeout: order.timeout })
    if (wants > 0) {
      // What is still missing at the end of the time, the result lacks.
      const all = (wants) => performance.getEntriesByType('resource').length + 1 >= wants
      await page.waitForFunction(all, wants, { polling: 50, timeout: order.patience }).catch(() => {})
      for (const late = Date.now() + order.timeout; flight.size > 0 && Date.now() < late;) await page.waitForTimeout(50) // the next page would end them
    }
    Object.assign(seen, await page.evaluate(look))
    if (order.shape) seen.shape = await page.evaluate(shape)
  } catch (error) {
    seen.error = error.message.split('\n')[0]
  }
  for (const [event, listener] of listeners) page.off(event, listener)
  return { ...seen, failed, errors }
}

// look runs in the page.
function look() {
  // A sheet of another origin, which no name leads to here, may not be looked into.
  const hasRules = (sheet) => { try { return sheet.cssRules.length > 0 } catch { return false } }
  const entries = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
  return {
    responses: entries.map((e) => ({ url: e.name, protocol: e.nextHopProtocol, bytes: e.encodedBodySize })),
    images: [...document.images].map((i) => ({
      url: i.src, complete: i.complete, size: `${i.naturalWidth}x${i.naturalHeight}`, wanted: i.dataset.size,
    })),
    styles: [...document.styleSheets].filter(hasRules).length,
  }
}

// shape runs in the page. Values of attributes are not in it, since tokens are among them.
function shape() {
  const element = (e) => `${e.tagName} ${e.getAttributeNames().sort()} ${e.naturalWidth ?? ''}x${e.naturalHeight ?? ''}`
  return [...[...document.querySelectorAll('*')].map(element), document.body?.innerText].join('\n')
}
