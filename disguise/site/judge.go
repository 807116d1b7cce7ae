package site

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
		return []judge{{"x/net/html", sameDocument}, {"image/png", samePictures}}
	case "application/json", "application/manifest+json", "application/ld+json":
		return []judge{{"encoding/json", sameJSON}, {"image/png", samePictures}}
	case "text/css":
		return []judge{{"image/png", samePictures}}
	case "text/javascript", "application/javascript", "application/x-javascript":
		return append(program(".js", "node", "--check"), judge{"image/png", samePictures})
	case "image/png":
		return append(program(".png", "pngcheck", "-q"), judge{"image/png", samePicture})
	}
	return program(".mp4", "ffprobe", "-v", "error")
}

// program judges by the exit status of a program, if there is one of the name.
func program(suffix, name string, arguments ...string) []judge {
	file, err := exec.LookPath(name)
	if err != nil {
		return nil
	}
	run := func(ctx context.Context, object []byte) error {
		ctx, stop := context.WithTimeout(ctx, time.Minute)
		defer stop()
		dir, err := os.MkdirTemp("", "heddle-site-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		target := filepath.Join(dir, "object"+suffix)
		if err := os.WriteFile(target, object, 0o600); err != nil {
			return err
		}
		out, err := exec.CommandContext(ctx, file, append(arguments, target)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %.200s", err, out)
		}
		return nil
	}
	return []judge{{name, func(ctx context.Context, original, changed []byte) error {
		// The program gives no verdict on an object that it refuses as recorded, such as a module.
		if run(ctx, original) != nil {
			return errNoVerdict
		}
		return run(ctx, changed)
	}}}
}

var errNoVerdict = errors.New("the original is not accepted either")

func sameJSON(_ context.Context, original, changed []byte) error {
	var before, now any
	if err := errors.Join(json.Unmarshal(original, &before), json.Unmarshal(changed, &now)); err != nil {
		return err
	}
	return sameValue(before, now)
}

// sameValue compares all but texts, of which it compares the lengths, unless they hold a picture.
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

var uris = regexp.MustCompile(`data:image/png;base64,([A-Za-z0-9+/=]*)`)

// samePictures compares the pictures in data URIs.
func samePictures(ctx context.Context, original, changed []byte) error {
	before, now := uris.FindAllSubmatch(original, -1), uris.FindAllSubmatch(changed, -1)
	if len(before) != len(now) {
		return errors.New("the data URIs changed")
	}
	for i := range before {
		if bytes.Equal(before[i][1], now[i][1]) {
			continue
		}
		a, errA := base64.StdEncoding.DecodeString(string(before[i][1]))
		b, errB := base64.StdEncoding.DecodeString(string(now[i][1]))
		if err := errors.Join(errA, errB, samePicture(ctx, a, b)); err != nil {
			return err
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
