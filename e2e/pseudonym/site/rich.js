// Says in the title what the page could load.
const seen = async () => {
  const image = document.getElementById('image')
  await image.decode()
  const older = await new Promise((resolve) => {
    const request = new XMLHttpRequest()
    request.onload = () => resolve(request.responseText)
    request.open('GET', '/rich.txt')
    request.send()
  })
  const background = new Image()
  background.src = '/back.svg'
  await background.decode()
  const large = await (await fetch('/large.bin')).arrayBuffer()
  const moved = await fetch('/sub')
  await document.fonts.load('100px rich')
  const canvas = document.createElement('canvas').getContext('2d')
  canvas.font = '100px rich, monospace'
  return [
    getComputedStyle(document.getElementById('styled')).color, image.naturalWidth, background.naturalWidth, (await (await fetch('/rich.json')).json()).n, older,
    (await import('/rich-module.js')).prime, large.byteLength, await moved.text(), (await fetch('/none')).status, (await fetch('/rich.txt', { headers: { range: 'bytes=0-3' } })).status,
    Math.round(canvas.measureText('a').width),
  ].join(' ')
}
addEventListener('load', () => seen().then((all) => { document.title = `loaded: ${all}` }, (error) => { document.title = `loaded: ${error}` }))
