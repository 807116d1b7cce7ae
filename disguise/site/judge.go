package site

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/html"
)

// judge says whether a browser takes a changed object for the original. It shares no code with the carriers.
type judge struct {
	name string
	same func(ctx context.Context, original, changed []byte) error
}

// judges returns those that look at a media type.
func judges(mediaType string) (all []judge) {
	switch mediaType {
	case htmlType, "application/xhtml+xml":
		return []judge{{"x/net/html", sameDocument}, {dataURIs, sameURIs}}
	case "application/json", "application/manifest+json", "application/ld+json":
		return []judge{{"encoding/json", sameJSON}, {dataURIs, sameURIs}}
	case "text/css":
		return []judge{{dataURIs, sameURIs}}
	case "text/javascript", "application/javascript", "application/x-javascript":
		return append(scripts(), judge{dataURIs, sameURIs})
	case "image/png":
		return append(program(".png", "pngcheck", "-q"), judge{"image/png", samePicture})
	case "image/jpeg":
		return append(program(".jpg", "djpeg"), judge{"image/jpeg", similarPhoto})
	case "application/pdf": // the last one is for what has a password, where the others cannot look
		return slices.Concat(program(".pdf", "qpdf", "--check"), prints(".pdf", "pdftoppm", "-r", "36", "-l", "20"), program(".pdf", "qpdf", "--requires-password"))
	case "font/woff2", "application/font-woff2":
		return program(".woff2", "woff2_decompress")
	case "application/x-shockwave-flash":
		return []judge{{"tags", sameTags}}
	}
	return prints(".mp4", "ffprobe", "-v", "error", "-show_entries", "packet=size,pos")
}

// dataURIs is the name of the judge of what they hold, who looks at nothing else of an object.
const dataURIs = "data URIs"

// programs are those without which nothing looks at a type, and Debian's packages with them.
var programs = map[string]string{"text/javascript": "nodejs", "application/javascript": "nodejs", "application/x-javascript": "nodejs",
	"application/pdf": "qpdf and poppler-utils", "font/woff2": "woff2", "application/font-woff2": "woff2"}

// lacks says why nobody judged an object of a type, or returns "" if somebody did. Style sheets hide something in URIs only.
func lacks(mediaType string, judged []string) string {
	if slices.ContainsFunc(judged, func(name string) bool { return name != dataURIs || mediaType == "text/css" }) {
		return ""
	}
	named := programs[mediaType]
	if named == "" {
		named = "ffmpeg"
	}
	if slices.ContainsFunc(judges(mediaType), func(j judge) bool { return j.name != dataURIs }) {
		return "the programs of " + named + " refuse what was recorded"
	}
	return "install " + named
}

// scripts judges by what node parses: an object as a classic script, or else as a module. node checks nothing of a file .js that has the syntax of modules.
func scripts() []judge {
	classic, module := program(".cjs", "node", "--check"), program(".mjs", "node", "--check")
	if len(classic) == 0 {
		return nil
	}
	return []judge{{classic[0].name, func(ctx context.Context, original, changed []byte) error {
		err := classic[0].same(ctx, original, changed)
		if errors.Is(err, errNoVerdict) {
			err = module[0].same(ctx, original, changed)
		}
		return err
	}}}
}

// behind judges a part of media that a program refuses alone behind each of the beginnings of its site.
func (j judge) behind(beginnings [][]byte) judge {
	return judge{j.name, func(ctx context.Context, original, changed []byte) error {
		err := j.same(ctx, original, changed)
		for i := 0; i < len(beginnings) && errors.Is(err, errNoVerdict); i++ {
			err = j.same(ctx, slices.Concat(beginnings[i], original), slices.Concat(beginnings[i], changed))
		}
		return err
	}}
}

// program judges by the exit status of a program, if there is one of the name.
func program(suffix, name string, arguments ...string) []judge {
	return started(suffix, name, arguments, func(_, _ []byte) bool { return true })
}

// prints judges by what a program prints, too.
func prints(suffix, name string, arguments ...string) []judge {
	return started(suffix, name, arguments, bytes.Equal)
}

func started(suffix, name string, arguments []string, same func(a, b []byte) bool) []judge {
	file, err := exec.LookPath(name)
	if err != nil {
		return nil
	}
	// run returns the sum of what it prints, which may be long.
	run := func(ctx context.Context, object []byte) ([]byte, error) {
		ctx, stop := context.WithTimeout(ctx, time.Minute)
		defer stop()
		dir, err := os.MkdirTemp("", "heddle-site-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		target := filepath.Join(dir, "object"+suffix)
		if err := os.WriteFile(target, object, 0o600); err != nil {
			return nil, err
		}
		printed, begin := sha256.New(), &beginning{}
		c := exec.CommandContext(ctx, file, append(slices.Clone(arguments), target)...)
		c.Stdout, c.Stderr = io.MultiWriter(printed, begin), begin
		if err := c.Run(); err != nil {
			return nil, fmt.Errorf("%w: %s", err, begin.text)
		}
		return printed.Sum(nil), nil
	}
	return []judge{{name, func(ctx context.Context, original, changed []byte) error {
		// The program gives no verdict on an object that it refuses as recorded.
		before, err := run(ctx, original)
		if err != nil {
			return errNoVerdict
		}
		now, err := run(ctx, changed)
		if err == nil && !same(before, now) {
			err = errors.New("it shows something else")
		}
		return err
	}}}
}

// beginning keeps the first part of a text.
type beginning struct {
	lock sync.Mutex // two streams of a program write to it
	text []byte
}

func (b *beginning) Write(p []byte) (int, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	b.text = append(b.text, p[:min(len(p), 200-len(b.text))]...)
	return len(p), nil
}

var errNoVerdict = errors.New("the original is not accepted either")

func sameJSON(_ context.Context, original, changed []byte) error {
	var before, now any
	if err := errors.Join(json.Unmarshal(original, &before), json.Unmarshal(changed, &now)); err != nil {
		return err
	}
	return sameValue(before, now)
}

// sameValue compares all but texts, of which it compares the lengths, unless they hold a URI with data.
func sameValue(before, now any) error {
	same := true
	switch b := before.(type) {
	case map[string]any:
		n, _ := now.(map[string]any)
		same = len(b) == len(n)
		for key, value := range b {
			other, found := n[key]
			if err := sameValue(value, other); !found || err != nil {
				return errors.Join(fmt.Errorf("the value of %.50q changed", key), err)
			}
		}
	case []any:
		n, _ := now.([]any)
		if same = len(b) == len(n); same {
			for i := range b {
				if err := sameValue(b[i], n[i]); err != nil {
					return err
				}
			}
		}
	case string:
		n, isText := now.(string)
		same = isText && (len(b) == len(n) || uris.MatchString(b) && uris.MatchString(n))
	default:
		same = before == now
	}
	if !same {
		return errors.New("a value changed its type, its length, or what it says")
	}
	return nil
}

// sameDocument compares the trees of two documents, but not the values of attributes and the content of scripts with JSON.
func sameDocument(ctx context.Context, original, changed []byte) error {
	before, err := html.Parse(bytes.NewReader(original))
	if err != nil {
		return err
	}
	now, err := html.Parse(bytes.NewReader(changed))
	if err != nil {
		return err
	}
	next := func(n *html.Node) (all []*html.Node) {
		for child := range n.Descendants() {
			all = append(all, child)
		}
		return all
	}
	a, b := next(before), next(now)
	if len(a) != len(b) {
		return fmt.Errorf("the document has %d nodes instead of %d", len(b), len(a))
	}
	for i := range a {
		state := a[i].Parent.Data == "script" && json.Valid([]byte(a[i].Data))
		switch {
		case a[i].Type != b[i].Type || len(a[i].Attr) != len(b[i].Attr) || a[i].Data != b[i].Data && !state:
			return fmt.Errorf("node %d changed", i)
		case state:
			if err := sameJSON(ctx, []byte(a[i].Data), []byte(b[i].Data)); err != nil {
				return err
			}
		}
		for j := range a[i].Attr {
			if a[i].Attr[j].Key != b[i].Attr[j].Key {
				return fmt.Errorf("node %d has other attributes", i)
			}
		}
	}
	return nil
}

// samePicture compares pictures as they are shown: transparent pixels have no colour.
func samePicture(_ context.Context, original, changed []byte) error {
	before, errA := png.Decode(bytes.NewReader(original))
	now, errB := png.Decode(bytes.NewReader(changed))
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	if before.Bounds() != now.Bounds() {
		return errors.New("the picture has another size")
	}
	for y := range before.Bounds().Dy() {
		for x := range before.Bounds().Dx() {
			if !sameColour(before, now, x, y) {
				return fmt.Errorf("pixel %d,%d changed", x, y)
			}
		}
	}
	return nil
}

func sameColour(a, b image.Image, x, y int) bool {
	r1, g1, b1, a1 := a.At(x, y).RGBA() // multiplied by alpha
	r2, g2, b2, a2 := b.At(x, y).RGBA()
	return r1 == r2 && g1 == g2 && b1 == b2 && a1 == a2
}
