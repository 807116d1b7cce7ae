package web

import (
	"bufio"
	"io"
	"strings"
	"testing"

	"heddle/disguise/cover/web/browser"
)

// writes notes the size of each write.
type writes struct {
	io.Writer
	sizes []int
}

func (w *writes) Write(b []byte) (int, error) {
	w.sizes = append(w.sizes, len(b))
	return len(b), nil
}

// The body of a short request is written with the head, and that of a long one apart, as Chromium does.
func TestBodyOfALongRequest(t *testing.T) {
	for size, want := range map[int]int{0: 1, 100: 1, mostMerged - headSizeOf(t): 1, mostMerged - headSizeOf(t) + 1: 2, 4000: 2} {
		w := &writes{}
		_, _ = (&lines{w, bufio.NewReader(strings.NewReader(""))}).fetch(browser.Request{Method: "POST", Path: "/", Body: make([]byte, size)})
		if len(w.sizes) != want || want == 2 && w.sizes[1] != size {
			t.Errorf("a body of %d bytes is written in %d", size, w.sizes)
		}
	}
}

func headSizeOf(t *testing.T) int {
	t.Helper()
	w := &writes{}
	_, _ = (&lines{w, bufio.NewReader(strings.NewReader(""))}).fetch(browser.Request{Method: "POST", Path: "/"})
	return w.sizes[0]
}
