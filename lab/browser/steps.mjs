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
      const focus = await act(page, step)
      if (step.show) seen[step.show] = { ...await look(page), focus, look: step.look ? await inPage(page, looks) : {} }
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
  const focus = []
  for (const key of step.keys ?? []) {
    await page.keyboard.press(key)
    focus.push(await inPage(page, focused))
  }
  if (step.type) await page.keyboard.type(step.type)
  if (step.press) await leave(page, () => page.keyboard.press(step.press))
  if (step.title) await page.waitForFunction((title) => document.title.startsWith(title), step.title)
  if (step.shot) await page.screenshot({ path: step.shot, fullPage: true })
  return focus
}

// inPage runs a function in the page, with those that it may need.
function inPage(page, f) {
  return page.evaluate(`(() => {${[rgba, light, over, behind, contrastOf].join('\n')}\nreturn (${f})()})()`)
}

function rgba(text) {
  const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number)
  return [r, g, b, a]
}

function light(colour) {
  return colour.slice(0, 3).map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0)
}

function over(top, under) {
  return top.map((c, i) => i === 3 ? 1 : c * top[3] + under[i] * (1 - top[3]))
}

function behind(one) {
  return one ? over(rgba(getComputedStyle(one).backgroundColor), behind(one.parentElement)) : matchMedia('(prefers-color-scheme: dark)').matches ? [18, 18, 18, 1] : [255, 255, 255, 1]
}

// contrastOf is that of a colour on another one (WCAG 2.2, "contrast ratio").
function contrastOf(colour, under) {
  const [low, high] = [light(over(rgba(colour), under)), light(under)].sort((a, b) => a - b)
  return (high + 0.05) / (low + 0.05)
}

// focused runs in the page, and says what has the focus. A user sees it by a line that is thick enough and stands out.
function focused() {
  const one = document.activeElement
  const box = one.getBoundingClientRect(), style = getComputedStyle(one)
  const name = one.getAttribute('aria-label') ?? one.labels?.[0]?.innerText ?? one.innerText ?? ''
  return { name: name.trim(), visible: box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth && style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2 && contrastOf(style.outlineColor, behind(one.parentElement)) >= 3 }
}

// looks runs in the page, and says how it looks.
function looks() {
  const shown = (one) => one.checkVisibility() && one.getClientRects().length
  let contrast = 21, faintest = ''
  const measure = (one, colour, text) => {
    const ratio = contrastOf(colour, behind(one))
    if (ratio < contrast) [contrast, faintest] = [ratio, text]
  }
  for (const one of [...document.body.querySelectorAll('*')].filter(shown)) {
    const text = [...one.childNodes].filter((child) => child.nodeType === Node.TEXT_NODE).map((child) => child.data).join('').trim()
    if (text || one.value) measure(one, getComputedStyle(one).color, text || one.value)
    if (one.placeholder && !one.value) measure(one, getComputedStyle(one, '::placeholder').color, one.placeholder)
  }
  // A label is part of its box to tick.
  const small = [...document.querySelectorAll('a, button, input:not([type=hidden]), summary')].filter(shown).filter((one) => {
    const box = (one.type === 'checkbox' ? one.closest('label') : one).getBoundingClientRect()
    const link = one.matches('a:not(.button)')
    if (link && [...one.parentNode.childNodes].some((other) => other.nodeType === Node.TEXT_NODE && other.data.trim())) return false // in a sentence
    const least = link ? 24 : 44
    return box.width < least || box.height < least
  }).map((one) => (one.getAttribute('aria-label') ?? one.innerText) || one.name)
  // A word that anybody reads is in one piece. Names of pseudonyms are longer.
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), broken = []
  for (const range = document.createRange(); texts.nextNode();) {
    for (const word of texts.currentNode.data.matchAll(/[\w.]{2,20}(?![\w.])/g)) {
      if (/[\w.]/.test(texts.currentNode.data[word.index - 1] ?? ' ')) continue
      range.setStart(texts.currentNode, word.index)
      range.setEnd(texts.currentNode, word.index + word[0].length)
      if (new Set([...range.getClientRects()].map((r) => Math.round(r.top))).size > 1) broken.push(word[0])
    }
  }
  return { broken, wider: document.documentElement.scrollWidth - innerWidth, paper: getComputedStyle(document.body).backgroundColor, contrast, faintest, small }
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
