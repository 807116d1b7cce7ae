package web

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"heddle/disguise/cover/web/browser"
)

// speaker sends requests. The caller closes the bodies of the answers.
type speaker interface {
	fetch(browser.Request) (*http.Response, error)
}

// lines speaks HTTP/1.1 (RFC 9112), one exchange after the other.
type lines struct {
	out io.Writer
	in  *bufio.Reader
}

// mostMerged is how long a request may be that Chromium writes at once, in bytes. It writes the head and the body of a longer one apart, so they
// are packets apart.
const mostMerged = 1400

// fetch implements [speaker].
func (l *lines) fetch(r browser.Request) (*http.Response, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: keep-alive\r\n", r.Method, r.Path, r.Authority)
	var cookies []string
	for i, f := range r.Fields {
		switch {
		case f.Name == "Priority": // of HTTP/2 only
		case f.Name == "Cookie" && i+1 < len(r.Fields) && r.Fields[i+1].Name == "Cookie":
			cookies = append(cookies, f.Value)
		case f.Name == "Cookie":
			fmt.Fprintf(&b, "Cookie: %s\r\n", strings.Join(append(cookies, f.Value), "; "))
		default:
			fmt.Fprintf(&b, "%s: %s\r\n", f.Name, f.Value)
		}
	}
	b.WriteString("\r\n")
	body := r.Body
	if b.Len()+len(body) <= mostMerged {
		b.Write(body)
		body = nil
	}
	if _, err := l.out.Write(b.Bytes()); err != nil {
		return nil, err
	}
	if len(body) > 0 {
		if _, err := l.out.Write(body); err != nil {
			return nil, err
		}
	}
	return http.ReadResponse(l.in, &http.Request{Method: r.Method})
}

// streams speaks HTTP/2, with many exchanges at a time.
type streams struct{ *browser.Conn }

// fetch implements [speaker].
func (s streams) fetch(r browser.Request) (*http.Response, error) {
	stream, err := s.Do(r)
	if err != nil {
		return nil, err
	}
	status, header, err := stream.Head()
	if err != nil {
		stream.Close()
		return nil, err
	}
	length, err := strconv.ParseInt(header.Get("Content-Length"), 10, 64)
	if err != nil || length < 0 {
		length = -1
	}
	return &http.Response{StatusCode: status, Header: header, ContentLength: length, Body: body{stream}}, nil
}

// body closes a stream like a body.
type body struct{ *browser.Stream }

// Close implements [io.Closer].
func (b body) Close() error {
	b.Stream.Close()
	return nil
}
