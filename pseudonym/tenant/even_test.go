package tenant

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"heddle/pseudonym/mutual"
)

// raw is a site that writes its answers itself.
func raw(t *testing.T, answer func(c io.Writer, r *http.Request)) http.Handler {
	var answers sync.WaitGroup
	t.Cleanup(answers.Wait)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		answers.Go(func() {
			defer c.Close()
			answer(c, r)
		})
	})
}

// feeds are ways in which a site's server may write an answer.
var feeds = map[string]func(c io.Writer, headers, content []byte){
	"at once": func(c io.Writer, headers, content []byte) { c.Write(slices.Concat(headers, content)) },
	"headers first": func(c io.Writer, headers, content []byte) {
		c.Write(headers)
		c.Write(content)
	},
	"headers, and a pause": func(c io.Writer, headers, content []byte) {
		c.Write(headers)
		time.Sleep(lateFor / 2)
		c.Write(content)
	},
	"little by little": func(c io.Writer, headers, content []byte) {
		for part := range slices.Chunk(slices.Concat(headers, content), 700) {
			c.Write(part)
			time.Sleep(lateFor / 1000)
		}
	},
	"tag by tag": func(c io.Writer, headers, content []byte) {
		for part := range bytes.SplitAfterSeq(slices.Concat(headers, content), []byte(">")) {
			c.Write(part)
		}
	},
	"a little, and then all": func(c io.Writer, headers, content []byte) {
		c.Write(slices.Concat(headers, content[:1]))
		time.Sleep(lateFor / 2)
		c.Write(content[1:])
	},
	"much, and then little": func(c io.Writer, headers, content []byte) {
		c.Write(slices.Concat(headers, content[:len(content)-1]))
		time.Sleep(lateFor / 2)
		c.Write(content[len(content)-1:])
	},
}

// The records of an answer do not depend on how the site's server writes it: not those of files, nor of pages that the sidecar changes, packs or not.
func TestAnswersAreEven(t *testing.T) {
	for _, protocol := range protocols {
		for _, kind := range []string{"application/pdf", "text/html", "text/html packed"} {
			for name, content := range map[string][]byte{
				"small": contentOf(1000), "usual": contentOf(40_000), "large": contentOf(300_000),
				"with a long text": slices.Concat(bytes.Repeat([]byte("<p>"), 4333), bytes.Repeat([]byte("x"), 320_000), []byte("<p>")),
			} {
				t.Run(fmt.Sprint(protocol, " ", kind, " ", name), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { evenly(t, protocol, kind, content) })
				})
			}
		}
	}
}

// contentOf makes a page of about so many bytes that does not pack too well.
func contentOf(size int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "<p>%d <a href=\"//%s/%x\">%x</a>\n", i, site, i*i*7919, i*i*104729)
	}
	return b.Bytes()
}

func evenly(t *testing.T, protocol, kind string, content []byte) {
	kind, packed := strings.CutSuffix(kind, " packed")
	headers, sent := "", content
	if packed {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write(content)
		z.Close()
		headers, sent = "Content-Encoding: gzip\r\n", b.Bytes()
	}
	headers = fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: %s\r\n%sContent-Length: %d\r\n\r\n", kind, headers, len(sent))
	var by string
	v := newVisit(t, Options{Site: raw(t, func(c io.Writer, _ *http.Request) { feeds[by](c, []byte(headers), sent) })}, "").piped(t)
	want := map[bool]string{true: strings.ReplaceAll(string(content), site, v.name), false: string(content)}[kind == "text/html"]
	seen := map[string][]string{}
	for by = range feeds {
		got, sizes := v.records(t, protocol, map[bool]string{true: "gzip"}[packed])
		if packed {
			z, err := gzip.NewReader(bytes.NewReader(got))
			if err != nil {
				t.Fatal(err)
			}
			if got, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		if string(got) != want {
			t.Errorf("%s: other content", by)
		}
		if len(content) < 2000 && protocol == "http/1.1" && len(sizes) != 1 {
			t.Errorf("%s: the headers leave alone: %v", by, sizes)
		}
		seen[fmt.Sprint(sizes)] = append(seen[fmt.Sprint(sizes)], by)
	}
	if len(seen) != 1 {
		t.Errorf("an observer tells how a server writes: %v", seen)
	}
}

// tap notes what arrives by a connection.
type tap struct {
	net.Conn
	got bytes.Buffer
}

func (c *tap) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.got.Write(b[:n])
	return n, err
}

// records gets an answer by a connection of its own, and returns its content and the sizes of the records of TLS that it came in.
func (v *visit) records(t *testing.T, protocol, accepts string) (content []byte, sizes []int) {
	t.Helper()
	plain, err := v.reach(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	in := &tap{Conn: plain}
	c := tls.Client(in, v.config(protocol))
	defer c.Close()
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	get := v.get1
	if protocol == "h2" {
		get = v.get2
	}
	if content, err = get(c, accepts, in.got.Reset); err != nil {
		t.Fatal(err)
	}
	for b := in.got.Bytes(); len(b) >= 5; {
		n := int(b[3])<<8 | int(b[4])
		sizes, b = append(sizes, n), b[min(len(b), 5+n):]
	}
	return content, sizes
}

// get1 gets an answer by HTTP/1.1. It calls begin before the answer begins.
func (v *visit) get1(c io.ReadWriter, accepts string, begin func()) ([]byte, error) {
	begin()
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nCookie: %s=%s\r\nAccept-Encoding: %s\r\n\r\n", v.name, mutual.CookieName, v.Capability, accepts)
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r.Body)
}

// get2 is as get1, by HTTP/2.
func (v *visit) get2(c io.ReadWriter, accepts string, begin func()) (content []byte, err error) {
	io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	const much = 1 << 24
	if err := errors.Join(f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: much}), f.WriteWindowUpdate(0, much)); err != nil {
		return nil, err
	}
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", "/"}, {":authority", v.name}, {"accept-encoding", accepts},
		{"cookie", mutual.CookieName + "=" + v.Capability.String()}} {
		e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return nil, err
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = f.WriteSettingsAck()
				break
			}
			begin()
			err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
		case *http2.DataFrame:
			if content = append(content, frame.Data()...); frame.StreamEnded() {
				return content, nil
			}
		case *http2.RSTStreamFrame:
			return content, errors.New("a reset")
		}
		if err != nil {
			return nil, err
		}
	}
}

// A server stops in the middle of an answer. The client gets what came within lateFor, and at once if the answer has no length. The same holds for headers.
func TestNothingWaitsForLong(t *testing.T) {
	const all = 1000
	for _, protocol := range protocols {
		for headers, most := range map[string]time.Duration{
			fmt.Sprintf("Content-Type: text/plain\r\nContent-Length: %d", all):           lateFor,
			fmt.Sprintf("Content-Type: text/html\r\nContent-Length: %d", all):            lateFor,
			"Content-Type: text/plain\r\nConnection: close":                              0,
			"Content-Type: text/html\r\nConnection: close":                               0,
			"Content-Type: text/event-stream\r\nConnection: close":                       0,
			fmt.Sprintf("Content-Type: text/event-stream\r\nContent-Length: %d", all):    lateFor,
			fmt.Sprintf("Content-Type: application/pdf\r\nContent-Length: %d", 20*65536): lateFor,
		} {
			t.Run(protocol+" "+headers, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					more := make(chan string, 1)
					v := newVisit(t, Options{Site: raw(t, func(c io.Writer, _ *http.Request) {
						for text := range more {
							io.WriteString(c, text)
						}
					})}, "").piped(t)
					defer close(more)
					came := func(what, text string, get func()) {
						began := time.Now()
						more <- text
						if get(); time.Since(began) > most {
							t.Errorf("%s come after %v, not %v", what, time.Since(began), most)
						}
					}
					var body io.Reader
					came("headers", "HTTP/1.1 200 OK\r\n"+headers+"\r\n\r\n", func() {
						r, err := v.browser(t, protocol).Get("https://" + v.name + "/")
						if err != nil {
							t.Fatal(err)
						}
						t.Cleanup(func() { r.Body.Close() })
						body = r.Body
					})
					for _, tags := range []int{1, 1, 100} {
						text := strings.Repeat("<p>", tags)
						came(fmt.Sprint(tags, " tags"), text, func() {
							got := make([]byte, len(text))
							if _, err := io.ReadFull(body, got); err != nil || string(got) != text {
								t.Errorf("%q, %v", got, err)
							}
						})
					}
				})
			})
		}
	}
}

// An answer breaks off. The client gets all that came, and learns that it is not whole.
func TestAnswersThatBreakOff(t *testing.T) {
	text := strings.Repeat("<p>", evenBlock/2)
	for _, protocol := range protocols {
		for _, kind := range []string{"text/plain", "text/html"} {
			synctest.Test(t, func(t *testing.T) {
				v := newVisit(t, Options{Site: raw(t, func(c io.Writer, _ *http.Request) {
					fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", kind, len(text)+1, text)
				})}, "").piped(t)
				r, err := v.browser(t, protocol).Get("https://" + v.name + "/")
				if err != nil {
					t.Fatal(err)
				}
				defer r.Body.Close()
				if got, err := io.ReadAll(r.Body); err == nil || string(got) != text {
					t.Errorf("%s, %s: %d bytes of %d, %v", protocol, kind, len(got), len(text), err)
				}
			})
		}
	}
}
