package tenant

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"heddle/pseudonym/mutual"
)

// An upload may be slow, and may not stop: its client would hold a connection to the site's server.
func TestSlowUploads(t *testing.T) {
	for name, c := range map[string]struct {
		bytes int // of which one comes each minute
		size  int
		lasts time.Duration
		want  string
	}{
		"slow":  {10, 10, 9 * time.Minute, "HTTP/1.1 200 OK 10 <nil>"},
		"stops": {3, 10, 2*time.Minute + bodyFor, "HTTP/1.1 408 Request Timeout " + errStopped.Error() + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan error, 1)
				site := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					n, err := io.Copy(io.Discard, r.Body)
					ended <- err
					fmt.Fprint(w, n, " ", err)
				})
				v := newVisit(t, Options{Site: site}, "").piped(t)
				way := v.dial(t, "http/1.1")
				begin := time.Now()
				fmt.Fprintf(way, "PUT / HTTP/1.1\r\nHost: %s\r\nCookie: %s=%s\r\nContent-Length: %d\r\n\r\n", v.name, mutual.CookieName, v.Capability, c.size)
				go func() {
					for i := range c.bytes {
						if i > 0 {
							time.Sleep(time.Minute)
						}
						io.WriteString(way, "x")
					}
				}()
				r, err := http.ReadResponse(bufio.NewReader(way), nil)
				if err != nil {
					t.Fatal(err)
				}
				text, _ := io.ReadAll(r.Body)
				if got := strings.Join([]string{r.Proto, r.Status, string(text)}, " "); got != c.want || time.Since(begin) != c.lasts {
					t.Errorf("%q after %v, want %q after %v", got, time.Since(begin), c.want, c.lasts)
				}
				if err := <-ended; (err == nil) != (c.bytes == c.size) {
					t.Errorf("the site's server got %v", err)
				}
			})
		})
	}
}
