// Solves the puzzle of the store: for each part a number such that SHA-256(text ":" part ":" number) begins with zero bits. crypto.subtle
// answers one hash at a time, which takes ten times as long.
'use strict'
const form = document.getElementById('work')
const { text } = form.dataset, bits = Number(form.dataset.bits), parts = Number(form.dataset.parts)
const words = new Uint32Array(64), table = new Uint32Array(64), start = new Uint32Array(8), state = new Uint32Array(8)

// FIPS 180-4, sections 4.2.2 and 5.3.3: the fractions of the cube roots and square roots of the first primes.
for (let n = 2, found = 0; found < 64; n++) {
  let prime = true
  for (let d = 2; d * d <= n; d++) if (n % d === 0) prime = false
  if (!prime) continue
  const fraction = (x) => (x - Math.floor(x)) * 2 ** 32
  if (found < 8) start[found] = fraction(Math.sqrt(n))
  table[found++] = fraction(Math.cbrt(n))
}

// block takes one block of 64 bytes into the state (section 6.2.2).
function block(bytes, at) {
  for (let i = 0; i < 16; i++) words[i] = bytes[at + 4 * i] << 24 | bytes[at + 4 * i + 1] << 16 | bytes[at + 4 * i + 2] << 8 | bytes[at + 4 * i + 3]
  for (let i = 16; i < 64; i++) {
    const x = words[i - 15], y = words[i - 2]
    words[i] = words[i - 16] + words[i - 7] + ((x >>> 7 | x << 25) ^ (x >>> 18 | x << 14) ^ x >>> 3) + ((y >>> 17 | y << 15) ^ (y >>> 19 | y << 13) ^ y >>> 10)
  }
  let [a, b, c, d, e, f, g, h] = state
  for (let i = 0; i < 64; i++) {
    const t = h + ((e >>> 6 | e << 26) ^ (e >>> 11 | e << 21) ^ (e >>> 25 | e << 7)) + (e & f ^ ~e & g) + table[i] + words[i] | 0
    const u = ((a >>> 2 | a << 30) ^ (a >>> 13 | a << 19) ^ (a >>> 22 | a << 10)) + (a & b ^ a & c ^ b & c) | 0
    h = g; g = f; f = e; e = d + t | 0; d = c; c = b; b = a; a = t + u | 0
  }
  state[0] += a; state[1] += b; state[2] += c; state[3] += d; state[4] += e; state[5] += f; state[6] += g; state[7] += h
}

const buffer = new Uint8Array(128)

// first returns the first 32 bits of a hash of a short text in ASCII.
function first(message) {
  const blocks = message.length < 56 ? 1 : 2
  buffer.fill(0)
  for (let i = 0; i < message.length; i++) buffer[i] = message.charCodeAt(i)
  buffer[message.length] = 0x80
  buffer[64 * blocks - 2] = message.length * 8 >>> 8
  buffer[64 * blocks - 1] = message.length * 8
  state.set(start)
  for (let i = 0; i < blocks; i++) block(buffer, 64 * i)
  return state[0]
}

const answer = []
let number = 0

// work goes on for a moment, and lets the browser breathe between.
function work() {
  for (const end = performance.now() + 50; performance.now() < end;) {
    for (let i = 0; i < 500; i++, number++) {
      if (Math.clz32(first(text + ':' + answer.length + ':' + number)) < bits) continue
      answer.push(number)
      number = -1
      form.querySelector('progress').value = answer.length
      if (answer.length === parts) {
        form.elements.puzzle.value = text
        form.elements.answer.value = answer.join(',')
        form.submit()
        return
      }
    }
  }
  setTimeout(work)
}
work()
