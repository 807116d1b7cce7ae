package browser

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// What a gallery holds.
const (
	galleryPages  = 20
	galleryImages = 6 // on each page, and one more as its background
)

// makeGallery fills a new directory with galleryPages pages as a browser meets them: text, a style sheet that all share,
// one of the page's own with a background, and galleryImages images in PNG, JPEG and SVG, about 300 kB a page. No
// two images have the same size in pixels; data-size of an img element is the size that the browser must find. It is
// always the same, and returns the names of the pages in the order in which they link to each other.
func makeGallery(dir string) ([]string, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	files := map[string][]byte{"style.css": []byte(galleryStyle)}
	var pages []string
	for page := range galleryPages {
		pages = append(pages, fmt.Sprintf("page-%02d.html", page))
	}
	for page, name := range pages {
		if err := galleryPage(files, page, name, pages[(page+1)%len(pages)]); err != nil {
			return nil, err
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return nil, err
		}
	}
	return pages, nil
}

const galleryStyle = `body { max-width: 60rem; margin: 1rem auto; font: 1rem/1.5 serif; color: rgb(1, 2, 3) }
figure { display: inline-block; margin: .5rem }
img { border: 1px solid gray }
`

// galleryPage adds the files of one page. The two style sheets each leave a mark that a script can find: the colour of
// the text, and the page's number as --page.
func galleryPage(files map[string][]byte, page int, name, next string) error {
	random := rand.New(rand.NewChaCha8([32]byte{byte(page)}))
	base := strings.TrimSuffix(name, ".html")
	var html strings.Builder
	fmt.Fprintf(&html, `<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Page %d</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="style.css"><link rel="stylesheet" href="%s.css"></head>
<body><h1>Page %[1]d</h1><p><a href="%s">next</a></p>
`, page, base, next)
	for i := range galleryImages {
		size := image.Pt(140+page, 100+i)
		file := fmt.Sprintf("%s-%d.%s", base, i, []string{"png", "png", "png", "png", "jpg", "svg"}[i])
		content, err := picture(random, file, size)
		if err != nil {
			return err
		}
		files[file] = content
		fmt.Fprintf(&html, "<p>%s</p>\n<figure><img src=\"%s\" data-size=\"%dx%d\" alt=\"\"></figure>\n",
			paragraph(random), file, size.X, size.Y)
	}
	html.WriteString("</body></html>\n")
	background, err := picture(random, "background.png", image.Pt(140+page, 99))
	if err != nil {
		return err
	}
	files[name] = []byte(html.String())
	files[base+"-background.png"] = background
	files[base+".css"] = fmt.Appendf(nil, ":root { --page: %d }\nbody { background: url(%s-background.png) no-repeat right top }\n", page, base)
	return nil
}

// picture makes an image of noise, which no compression shrinks, in the format that the file's name says.
func picture(random *rand.Rand, file string, size image.Point) ([]byte, error) {
	if strings.HasSuffix(file, ".svg") {
		var svg strings.Builder
		fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d">`, size.X, size.Y)
		for range 400 {
			fmt.Fprintf(&svg, `<circle cx="%d" cy="%d" r="%d" fill="#%06x"/>`+"\n", random.IntN(size.X), random.IntN(size.Y),
				1+random.IntN(9), random.IntN(1<<24))
		}
		return []byte(svg.String() + "</svg>\n"), nil
	}
	img := image.NewRGBA(image.Rectangle{Max: size})
	for y := range size.Y {
		for x := range size.X {
			n := random.Uint32()
			img.SetRGBA(x, y, color.RGBA{byte(n), byte(n >> 8), byte(n >> 16), 255})
		}
	}
	var out bytes.Buffer
	encode := png.Encode
	if strings.HasSuffix(file, ".jpg") {
		encode = func(w io.Writer, m image.Image) error { return jpeg.Encode(w, m, nil) }
	}
	err := encode(&out, img)
	return out.Bytes(), err
}

// paragraph makes some sentences of a text nobody has to read.
func paragraph(random *rand.Rand) string {
	var text strings.Builder
	for range 4 {
		sentence := make([]string, 6+random.IntN(12))
		for i := range sentence {
			sentence[i] = galleryWords[random.IntN(len(galleryWords))]
		}
		text.WriteString(strings.ToUpper(sentence[0][:1]) + strings.Join(sentence, " ")[1:] + ". ")
	}
	return text.String()
}

var galleryWords = strings.Fields(`warp weft heddle loom shuttle reed thread cloth yarn beam treadle shed pattern twill
satin plain selvedge bobbin spindle carder wool linen cotton silk dye mordant madder indigo weld fuller tenter
the a one each every some of under over through between before after with and then while`)
