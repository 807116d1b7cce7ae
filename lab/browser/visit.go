package browser

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"heddle/lab"
	"heddle/lab/peer"
)

// Visit describes what Chromium does.
type Visit struct {
	// Server is the web server, NAME:PORT. Chromium uses only HTTP/3 with it, and resolves no other name.
	Server      string
	TCP         bool   // use HTTP/2 over TLS instead of HTTP/3
	Plain       bool   // use HTTP without TLS instead, and no certificate
	Relay       string // ADDRESS:PORT that Chromium sends to instead of the server
	SOCKS4      string // ADDRESS:PORT of a proxy on loopback, which connects to Relay; empty is none
	Certificate string // PEM file of the one certificate that is trusted, by its key
	// Contexts hold the paths of pages on the server. A context has one connection, and starts with an empty cache.
	Contexts [][]string
	Timeout  time.Duration // for one page
	// Idle stays on a page until it has asked for nothing for half a second, so until its scripts have loaded all. Otherwise a visit leaves
	// when the page is loaded.
	Idle bool
	// Shape asks for that of each page.
	Shape bool
	// Wants is how many responses each page of a context has with all that it includes, if that is known; the last number is that of all
	// further pages. Chromium may report that a page is loaded before its Performance API has them all, or on a busy machine before its scripts have asked
	// for all.
	Wants    []int
	Patience time.Duration // for what a page lacks of them; 0 is Timeout
}

// Page is the result of one page.
type Page struct {
	URL       string     `json:"url"`
	Error     string     `json:"error"`     // why the page did not load, or empty
	Failed    []string   `json:"failed"`    // requests that failed, and error responses
	Errors    []string   `json:"errors"`    // that scripts did not catch, or that the console shows
	Shape     string     `json:"shape"`     // its elements, the names of their attributes, the sizes of pictures and the text, if they were asked for
	Responses []Response `json:"responses"` // of the page and all that it includes, from its Performance API
	Images    []Image    `json:"images"`
	Styles    int        `json:"styles"` // style sheets that were read
}

// Response is one response.
type Response struct {
	URL      string `json:"url"`
	Protocol string `json:"protocol"` // ALPN id, such as "h3" for HTTP/3
	Bytes    int    `json:"bytes"`    // of the body
}

// Image is one image in a page.
type Image struct {
	URL      string `json:"url"`
	Complete bool   `json:"complete"`
	Size     string `json:"size"`   // in pixels, WIDTHxHEIGHT; 0x0 if it is broken
	Wanted   string `json:"wanted"` // the size that the page states
}

// Run visits the pages from a host and returns their results in order. A page that does not load is not an error.
func (v Visit) Run(ctx context.Context, host *lab.Host) ([]Page, error) {
	if err := Supported(); err != nil {
		return nil, err
	}
	args, err := v.args()
	if err != nil {
		return nil, err
	}
	scheme := "https://"
	if v.Plain {
		scheme = "http://"
	}
	contexts := make([][]string, len(v.Contexts))
	for i, pages := range v.Contexts {
		for _, page := range pages {
			contexts[i] = append(contexts[i], scheme+v.Server+"/"+page)
		}
	}
	until := "load"
	if v.Idle {
		until = "networkidle"
	}
	out, err := Script{Text: visitScript, Args: args, Order: map[string]any{"timeout": v.Timeout.Milliseconds(), "contexts": contexts, "until": until, "wants": v.Wants, "patience": cmp.Or(v.Patience, v.Timeout).Milliseconds(), "shape": v.Shape}}.Run(ctx, host)
	if err != nil {
		return nil, err
	}
	return parse(bytes.NewReader(out))
}

func parse(r io.Reader) (pages []Page, err error) {
	for d := json.NewDecoder(r); ; {
		var p Page
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return pages, nil
		} else if err != nil {
			return nil, fmt.Errorf("what visit.mjs printed: %w", err)
		}
		pages = append(pages, p)
	}
}

// args returns Chromium's flags, in addition to playwright's.
func (v Visit) args() ([]string, error) {
	args, rules := usualArgs[:len(usualArgs):len(usualArgs)], "MAP "+v.Server+" "+v.Relay+", MAP * ~NOTFOUND"
	if v.SOCKS4 != "" { // by SOCKS5 Chromium would leave names to the proxy
		args, rules = append(args, "--proxy-server=socks4://"+v.SOCKS4), rules+", EXCLUDE 127.0.0.1"
	}
	args = append(args, "--host-resolver-rules="+rules)
	if v.Plain {
		return args, nil
	}
	pin, err := peer.KeyHash(v.Certificate) // Chromium's QUIC accepts only known roots and such keys
	if err != nil {
		return nil, err
	}
	transport := "--origin-to-force-quic-on=" + v.Server
	if v.TCP {
		transport = "--disable-quic"
	}
	return append(args, transport, "--ignore-certificate-errors-spki-list="+base64.StdEncoding.EncodeToString(pin)), nil
}

// usualArgs are Chromium's flags in all scripts.
var usualArgs = []string{"--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"}
