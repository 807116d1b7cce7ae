package pseudonym

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// resolve asks the cloud's nameserver from a host.
func resolve(host *lab.Host, q *dns.Msg) (m *dns.Msg, err error) {
	err = host.Do(func() error {
		m, _, err = (&dns.Client{Timeout: 5 * time.Second}).Exchange(q, netip.AddrPortFrom(gateway, 53).String())
		return err
	})
	return m, err
}

// record returns the HTTPS record of a name.
func (w *world) record(name string) *dns.HTTPS {
	w.t.Helper()
	m, err := resolve(w.Host("client"), new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeHTTPS))
	if err != nil || len(m.Answer) != 1 {
		w.t.Fatalf("%s: %v, %v", name, m, err)
	}
	return m.Answer[0].(*dns.HTTPS)
}

// keyOf returns the key for encrypted hellos in a record, or nil.
func keyOf(record *dns.HTTPS) []byte {
	for _, value := range record.Value {
		if e, ok := value.(*dns.SVCBECHConfig); ok {
			return e.ECH
		}
	}
	return nil
}

// hello waits for the key for encrypted hellos in the record of the store.
func (w *world) hello() (list []byte) {
	w.t.Helper()
	polltest.Await(w.t, "the HTTPS record has a key", func() bool {
		list = keyOf(w.record("store." + zone))
		return list != nil
	})
	return list
}

// byIPv4 is where clients with IPv4 come to.
var byIPv4 = netip.AddrPortFrom(gateway, 443)

// fetch is a client of crypto/tls that encrypts its hellos, if it has the list of keys.
func (w *world) fetch(files registered, list []byte, to netip.AddrPort) (page string, state *tls.ConnectionState, err error) {
	w.t.Helper()
	own, err := tls.LoadX509KeyPair(filepath.Join(files.Dir, "cert.pem"), filepath.Join(files.Dir, "key.pem"))
	if err != nil {
		w.t.Fatal(err)
	}
	root, err := os.ReadFile(filepath.Join(w.dir, "root.pem"))
	if err != nil {
		w.t.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{own}, EncryptedClientHelloConfigList: list}
	config.RootCAs.AppendCertsFromPEM(root)
	by := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DialContext: func(context.Context, string, string) (c net.Conn, err error) {
		err = w.Host("client").Do(func() error {
			c, err = net.Dial("tcp", to.String())
			return err
		})
		return c, err
	}}
	defer by.CloseIdleConnections()
	r, err := (&http.Client{Transport: by, Timeout: time.Minute}).Get(files.URL)
	if err != nil {
		return "", nil, err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return string(b), r.TLS, err
}

// With an encrypted hello the network sees neither the site nor the pseudonym: all visits look like one to the store. A client with a key
// that is too old learns the new one.
func TestNetworkDoesNotSeeThePseudonym(t *testing.T) {
	w := newWorld(t)
	r, list := w.get(news), w.hello()
	dir := t.TempDir()
	end := labtest.Capture(t, w.Instance, dir, map[string]string{"isp": "isp/client"})

	old := slices.Clone(list)
	old[len(old)/2-10] ^= 1 // of the public key
	_, _, err := w.fetch(r, old, byIPv4)
	var rejected *tls.ECHRejectionError
	if !errors.As(err, &rejected) || !bytes.Equal(rejected.RetryConfigList, list) {
		t.Errorf("an old key: %v", err)
	}
	page, state, err := w.fetch(r, list, byIPv4)
	if err != nil || page != text(news) || !state.ECHAccepted {
		t.Errorf("%q, %v\n%s", page, err, w.sidecars[news].Log())
	}
	end()
	unseen(t, dir, r.Name)
}

// unseen checks what the observer of a capture did not see.
func unseen(t *testing.T, dir, name string) {
	t.Helper()
	seen, err := os.ReadFile(labtest.File(dir, "isp"))
	if err != nil {
		t.Fatal(err)
	}
	label, _, _ := strings.Cut(name, ".")
	for _, secret := range []string{label, "news", "nobody else reads"} {
		if bytes.Contains(seen, []byte(secret)) {
			t.Errorf("the observer sees %q", secret)
		}
	}
	if !bytes.Contains(seen, []byte("store."+zone)) {
		t.Error("the observer does not see the store's name: the capture is not complete")
	}
}

// Chromium does the same for all that it opens, if it asks for names by HTTPS.
func TestChromiumHidesThePseudonym(t *testing.T) {
	w := newWorld(t)
	c := w.chromium()
	c.Policies = map[string]any{"DnsOverHttpsMode": "secure", "DnsOverHttpsTemplates": w.resolver(c)}
	w.hello()
	dir := t.TempDir()
	end := labtest.Capture(t, w.Instance, dir, map[string]string{"isp": "isp/client"})
	made := c.do(step{Open: "https://store." + zone + "/"}, step{Register: news, Show: "made"})["made"]
	if len(made.Files) != 2 {
		t.Fatalf("%+v", made)
	}
	c.take(made)
	if seen := c.do(step{Open: made.Links[news], Show: "news"})["news"]; seen.Text != text(news) {
		t.Errorf("%+v", seen)
	}
	end()
	unseen(t, dir, strings.TrimPrefix(made.Links[news], "https://"))
}

// resolver runs a resolver by HTTPS (RFC 8484) beside the cloud, whose certificate a browser trusts, and returns its address for a browser.
// It answers for a name's HTTPS record before it answers for its addresses: a browser that has the addresses waits less than a second for
// the record, and then sends the name in clear.
func (w *world) resolver(c *chromium) (template string) {
	w.t.Helper()
	at := netip.AddrPortFrom(gateway, 8443)
	file, key := filepath.Join(w.t.TempDir(), "resolver.pem"), filepath.Join(w.t.TempDir(), "resolver-key.pem")
	if err := peer.SelfSigned(file, key, nil, []netip.Addr{at.Addr()}); err != nil {
		w.t.Fatal(err)
	}
	if err := c.Trust(w.t.Context(), "resolver", file); err != nil {
		w.t.Fatal(err)
	}
	var l net.Listener
	err := w.Host("cloud").Do(func() (err error) {
		l, err = net.Listen("tcp", at.String())
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	var records records
	web := &http.Server{Handler: http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		asked, err := base64.RawURLEncoding.DecodeString(r.URL.Query().Get("dns"))
		if r.Method == http.MethodPost {
			asked, err = io.ReadAll(io.LimitReader(r.Body, dns.MaxMsgSize))
		}
		q := new(dns.Msg)
		if err == nil {
			err = q.Unpack(asked)
		}
		var m *dns.Msg
		if err == nil {
			defer records.wait(r.Context(), q.Question[0])()
			m, err = resolve(w.Host("cloud"), q)
		}
		var b []byte
		if err == nil {
			b, err = m.Pack()
		}
		if err != nil {
			http.Error(answer, err.Error(), http.StatusBadRequest)
			return
		}
		answer.Header().Set("Content-Type", "application/dns-message")
		answer.Write(b)
	})}
	ended := make(chan struct{})
	go func() { defer close(ended); web.ServeTLS(l, file, key) }()
	w.t.Cleanup(func() { web.Close(); <-ended })
	return "https://" + at.String() + "/dns-query"
}

// records holds back answers for a name's addresses until the answer for its HTTPS record was given.
type records struct{ of sync.Map }

// wait returns once the question may be answered, or ctx ends. The caller calls done after the answer.
func (r *records) wait(ctx context.Context, q dns.Question) (done func()) {
	given, give := context.WithCancel(context.Background())
	first, _ := r.of.LoadOrStore(q.Name, record{given, give})
	if q.Qtype == dns.TypeHTTPS {
		return first.(record).give
	}
	select {
	case <-first.(record).given.Done():
	case <-ctx.Done():
	}
	return func() {}
}

type record struct {
	given context.Context // ends with the answer
	give  func()
}
