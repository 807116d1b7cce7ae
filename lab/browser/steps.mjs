// Does with Chromium what a user does, and prints what she saw as JSON. The order is {profile, timeout, steps, scripts, viewport,
// colorScheme}. user.go explains steps (Step) and what is printed (Seen).
import { readFileSync } from 'node:fs'
import { chromium } from 'playwright-core'

const { executable, args, order } = JSON.parse(readFileSync(0, 'utf8'))
const context = await chromium.launchPersistentContext(order.profile, { executablePath: executable, args, timeout: 60_000, viewport: order.viewport, colorScheme: order.colorScheme,
  javaScriptEnabled: order.scripts })
const seen = {}
try {
  context.setDefaultTimeout(order.timeout)
  let page = await context.newPage()
  for (const step of order.steps) {
    try {
      await act(page, step)
      if (step.show) seen[step.show] = await look(page)
      if (step.settled) Object.assign(seen[step.show], await settled())
    } catch (error) {
      if (!step.show) throw error
      seen[step.show] = { error: error.message.split('\n')[0] }
      page = await context.newPage() // the old one still shows the error
    }
  }
} finally {
  await context.close()
}
process.stdout.write(JSON.stringify(seen))

async function act(page, step) {
  if (step.fresh) await (await context.newCDPSession(page)).send('Network.clearBrowserCache')
  // A pseudonym ends within seconds of its revocation.
  for (const end = Date.now() + order.timeout; step.gone && Date.now() < end; await page.waitForTimeout(100)) await page.goto(step.gone, { waitUntil: 'load' })
  if (step.open) await page.goto(step.open, { waitUntil: 'load' })
  if (step.register) {
    await page.getByLabel('Site', { exact: true }).fill(step.register)
    await leave(page, () => page.keyboard.press('Enter'))
  }
  if (step.click) {
    const target = page.getByRole('link', { name: step.click }).or(page.getByRole('button', { name: step.click })).first()
    await leave(page, () => target.click())
  }
  if (step.title) await page.waitForFunction((title) => document.title.startsWith(title), step.title)
  if (step.shot) await page.screenshot({ path: step.shot, fullPage: true })
}

// settled waits until the worker of the page defence has padded all pages, and returns how many pieces each had, and how many after a pause had no content.
async function settled() {
  for (const end = Date.now() + order.timeout; Date.now() < end; await new Promise((resolve) => setTimeout(resolve, 100))) {
    const all = await context.serviceWorkers()[0].evaluate(() => [...pages.values()])
    if (all.every((page) => !page.open && !page.settles)) return { had: all.map((page) => page.had), late: all.map((page) => page.late) }
  }
}

// leave waits for the page that an act leads to.
async function leave(page, act) {
  const next = page.waitForEvent('load')
  await act()
  await next
}

async function look(page) {
  const files = {}
  for (const link of await page.locator('a.file').all()) {
    const [download] = await Promise.all([page.waitForEvent('download'), link.click()])
    files[download.suggestedFilename()] = readFileSync(await download.path()).toString('base64')
  }
  // At once, since a page may give way to another one, as the one that starts the page defence does.
  const links = Object.fromEntries(await page.locator('a').evaluateAll((all) => all.map((a) => [a.innerText.trim(), a.href])))
  const passphrase = page.locator('#passphrase')
  return {
    milliseconds: await duration(page), worker: await page.evaluate(() => Boolean(navigator.serviceWorker?.controller)), url: page.url(), title: await page.title(), text: await page.locator('body').innerText(), links, files,
    passphrase: await passphrase.count() ? await passphrase.innerText() : '',
  }
}

// duration waits until the load event has ended. waitForFunction does not work where pages may run no scripts.
async function duration(page) {
  for (;; await page.waitForTimeout(5)) {
    const [end, took] = await page.evaluate(() => { const n = performance.getEntriesByType('navigation')[0]; return [n?.loadEventEnd, n?.duration] })
    if (end > 0) return took
  }
}
