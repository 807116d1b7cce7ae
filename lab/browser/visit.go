package browser

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"heddle/lab"
)

// Visit is what Chromium is to do.
type Visit struct {
	// Server is the web server, NAME:PORT. Chromium speaks nothing but HTTP/3 with it, and finds no other name.
	Server string
	// TCP makes Chromium speak HTTP/2 over TLS in the place of HTTP/3.
	TCP bool
	// Relay is the address that Chromium sends to in the server's place, ADDRESS:PORT.
	Relay string
	// Certificate is the file of the server's certificate, in PEM: the one certificate that is trusted by its key.
	Certificate string
	// Contexts are the pages, by their paths on the server. The pages of one context follow one another over its
	// connection; the next context begins afresh, with nothing in the cache.
	Contexts [][]string
	// Timeout is how long one page may take.
	Timeout time.Duration
}

// Page is what came of a page.
type Page struct {
	URL string `json:"url"`
	// Error says why the page did not load; empty where it did.
	Error string `json:"error"`
	// Failed are the requests that failed, and the responses that say so.
	Failed []string `json:"failed"`
	// Responses are the page's own and those of all that it includes, as its Performance API counts them.
	Responses []Response `json:"responses"`
	Images    []Image    `json:"images"`
	// Styles is how many style sheets were read.
	Styles int `json:"styles"`
}

// Response is one response.
type Response struct {
	URL string `json:"url"`
	// Protocol is the ALPN id of what it came by: "h3" for HTTP/3.
	Protocol string `json:"protocol"`
	Bytes    int    `json:"bytes"` // of the body
}

// Image is one image in a page.
type Image struct {
	URL      string `json:"url"`
	Complete bool   `json:"complete"`
	Size     string `json:"size"`   // in pixels, WIDTHxHEIGHT; 0x0 where it is broken
	Wanted   string `json:"wanted"` // what the page says of its size
}

// Run visits the pages from a host and gives what came of each, in their order; pages that do not load are no error.
func (v Visit) Run(ctx context.Context, host *lab.Host) ([]Page, error) {
	if err := Supported(); err != nil {
		return nil, err
	}
	dir, err := install(ctx)
	if err != nil {
		return nil, err
	}
	args, err := v.args()
	if err != nil {
		return nil, err
	}
	executable, err := exec.LookPath("chromium")
	if err != nil {
		return nil, err
	}
	contexts := make([][]string, len(v.Contexts))
	for i, pages := range v.Contexts {
		for _, page := range pages {
			contexts[i] = append(contexts[i], "https://"+v.Server+"/"+page)
		}
	}
	order, err := json.Marshal(map[string]any{"executable": executable, "args": args, "timeout": v.Timeout.Milliseconds(),
		"contexts": contexts})
	if err != nil {
		return nil, err
	}
	// Chromium keeps its profile, its crash reports and the like below these, and would leave some of it behind.
	home, err := os.MkdirTemp("", "heddle-browser-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(home)
	cmd := host.Command(ctx, "node", filepath.Join(dir, "visit.mjs"))
	cmd.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+home, "XDG_CACHE_HOME="+home, "XDG_CONFIG_HOME="+home)
	cmd.Stdin = bytes.NewReader(order)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // playwright then ends Chromium
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("chromium on %s: %w\n%s", host.Name(), err, &stderr)
	}
	return parse(&stdout)
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

// args are Chromium's flags, beside those of playwright.
func (v Visit) args() ([]string, error) {
	pin, err := pin(v.Certificate)
	if err != nil {
		return nil, err
	}
	transport := "--origin-to-force-quic-on=" + v.Server
	if v.TCP {
		transport = "--disable-quic"
	}
	return []string{"--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", transport,
		"--host-resolver-rules=MAP " + v.Server + " " + v.Relay + ", MAP * ~NOTFOUND",
		"--ignore-certificate-errors-spki-list=" + pin}, nil
}

// pin is the hash of a certificate's public key, as Chromium's flag takes it: QUIC needs a root that is known to it, or
// this.
func pin(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return "", fmt.Errorf("%s holds no certificate", file)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	sum := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	return base64.StdEncoding.EncodeToString(sum[:]), nil
}
