// Visits pages with Chromium, each in a tab of its own and without a cache, and writes an HTTP archive with the bodies. The order is
// {archive, timeout (ms), pages: [url, ...], lost: url}. A page is visited when its script says so. Whatever fails ends the program.
import { readFileSync } from 'node:fs'
import { chromium } from 'playwright-core'

const { executable, args, order } = JSON.parse(readFileSync(0, 'utf8'))
const browser = await chromium.launch({ executablePath: executable, args, timeout: order.timeout })
try {
  const context = await browser.newContext({ recordHar: { path: order.archive, content: 'embed', mode: 'full' } })
  context.setDefaultTimeout(order.timeout)
  for (const url of order.pages) await visit(context, url, 200)
  await visit(context, order.lost, 404)
  await context.close() // which writes the archive
} finally {
  await browser.close()
}

async function visit(context, url, status) {
  const page = await context.newPage()
  const failed = []
  page.on('pageerror', (error) => failed.push(`${url}: ${error.message}`))
  page.on('requestfailed', (request) => failed.push(`${request.url()}: ${request.failure()?.errorText}`))
  page.on('response', (response) => { if (response.status() !== status) failed.push(`${response.url()}: ${response.status()}`) })
  await (await context.newCDPSession(page)).send('Network.setCacheDisabled', { cacheDisabled: true })
  await page.goto(url, { waitUntil: 'load' })
  if (status === 200) await page.waitForFunction(() => document.documentElement.dataset.ready)
  if (failed.length > 0) throw new Error(failed.join('\n'))
  await page.close()
}
