package demo

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"heddle/lab/peer"
	"heddle/observe"
	"heddle/observe/inspect"
	"heddle/path"
)

// CloudOptions control [RunCloud].
type CloudOptions struct {
	// Dir receives the pages and the captures. It replaces captures of an earlier demo, and nothing else.
	Dir      string
	Heddle   string    // path of the binary to show
	Loopback bool      // run over loopback addresses, without a world
	Terminal bool      // visit with `heddle pseudonym get` and curl, without a browser
	Talk     io.Writer // takes progress lines
}

// CloudResult is what [RunCloud] showed. Its JSON fields are a stable interface.
type CloudResult struct {
	World      string         `json:"world"`    // "cloud" or "loopback"
	Client     string         `json:"client"`   // "chromium" or "curl"
	Page       string         `json:"page"`     // the HTML page
	Details    string         `json:"details"`  // the HTML page of `heddle observe report`
	Captures   string         `json:"captures"` // directory of the captures
	Visited    []string       `json:"visited"`  // sites
	Plain      Saw            `json:"plain"`
	Pseudonyms Saw            `json:"pseudonyms"`
	Notes      []string       `json:"notes"` // for readers of the figures
	Report     observe.Report `json:"report"`
	picture    []byte         // of what the user saw, a PNG
}

// Saw is what the observer got of one way to visit the sites.
type Saw struct {
	DNS     []string `json:"dns"`     // names that the client looked up
	TLS     []string `json:"tls"`     // server names in ClientHellos
	Servers []string `json:"servers"` // addresses of connections, in order
	// Certificates are the names in the certificates that these servers show to the observer, who asks them for the names in TLS.
	Certificates []string `json:"certificates"`
	Connections  int      `json:"connections"` // by TCP
	Bytes        int64    `json:"bytes"`       // of IP packets
	Sites        []string `json:"sites"`       // of the visited ones, whose names are anywhere in the above, or in the captured bytes
}

// site is one site of the cloud, on a host of its name.
type site struct{ host, name string }

// The sites of the demo. The page of the first links to the last, which trusts it.
var (
	newsSite   = site{"news", "news.example"}
	clinicSite = site{"clinic", "clinic.example"}
	shopSite   = site{"shop", "shop.example"}
	cloudSites = []site{newsSite, clinicSite, shopSite}
)

const linkText = "Books about the subject"

// cloudStage is where the cloud runs and is captured.
type cloudStage struct {
	CloudOptions
	work         string
	cloud        *peer.Cloud
	certificates []string // PEM files of those of the sites' own servers
	// watch captures what the observer sees of the client to dir, while use runs.
	watch func(ctx context.Context, dir string, use func() error) error
	// curl prepares curl at the client, with flags that are needed there.
	curl curl
	// get are flags of `heddle pseudonym get` at the client.
	get []string
	// dial connects from the observer.
	dial    func(ctx context.Context, at netip.AddrPort) (net.Conn, error)
	visitor visitor
	notes   []string
	close   func() error
}

// visitor visits the sites.
type visitor interface {
	// plain visits them by their names.
	plain(ctx context.Context) error
	// pseudonyms gets pseudonyms of them and visits them by these.
	pseudonyms(ctx context.Context) error
}

// RunCloud lays a cloud with three sites, visits them by their names and by pseudonyms, and reports what an observer between the client
// and the cloud saw of both.
func RunCloud(ctx context.Context, o CloudOptions) (result CloudResult, err error) {
	captures, err := prepare(o.Dir)
	if err != nil {
		return result, err
	}
	work, err := os.MkdirTemp("", "heddle-demo-")
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	s := &cloudStage{CloudOptions: o, work: work, close: func() error { return nil }, notes: []string{}}
	defer func() { err = errors.Join(err, s.close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the servers, before the stage is closed
	if err := s.open(ctx); err != nil {
		return result, err
	}
	result = CloudResult{World: "cloud", Client: "chromium", Captures: captures, Page: filepath.Join(o.Dir, "pseudonym.html"), Details: filepath.Join(o.Dir, "report.html")}
	if o.Loopback {
		result.World = "loopback"
	}
	if o.Terminal {
		result.Client = "curl"
	}
	for _, site := range cloudSites {
		result.Visited = append(result.Visited, site.name)
	}
	sessions := make([]*observe.Session, 2)
	for i, phase := range []struct {
		label, dir string
		visit      func(context.Context) error
		saw        *Saw
	}{{"plain HTTPS", "plain", s.visitor.plain, &result.Plain}, {"pseudonyms", "pseudonyms", s.visitor.pseudonyms, &result.Pseudonyms}} {
		if sessions[i], *phase.saw, err = s.show(ctx, phase.label, filepath.Join(captures, phase.dir), phase.visit); err != nil {
			return result, fmt.Errorf("%s: %w", phase.label, err)
		}
	}
	if b, ok := s.visitor.(*byBrowser); ok {
		result.picture = b.picture
	}
	result.Notes = append(s.notes, "The column of pseudonyms includes getting them from the store.")
	sessions[1].Notes = result.Notes
	result.Report = observe.Compare(sessions[1], sessions[0])
	return result, errors.Join(writePage(result.Details, []*observe.Session{sessions[1], sessions[0]}), writeCloudPage(result))
}

// open makes the stage and its visitor.
func (s *cloudStage) open(ctx context.Context) error {
	if _, err := exec.LookPath("curl"); s.Terminal && err != nil {
		return &path.Error{What: "curl", Hint: "apt-get install curl", Err: err}
	}
	if s.Loopback {
		if err := s.openLoopback(ctx); err != nil {
			return err
		}
	} else if err := s.openWorld(ctx); err != nil {
		return err
	}
	if s.Terminal {
		s.visitor = &byTerminal{s}
	}
	return nil
}

// show lets the visitor visit, and reads what the observer captured.
func (s *cloudStage) show(ctx context.Context, label, dir string, visit func(context.Context) error) (*observe.Session, Saw, error) {
	fmt.Fprintf(s.Talk, "visit the sites by %s\n", label)
	began := time.Now()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, Saw{}, err
	}
	if err := s.watch(ctx, dir, func() error { return visit(ctx) }); err != nil {
		return nil, Saw{}, err
	}
	fmt.Fprintf(s.Talk, "visited in %.1f s; now ask the servers, as the observer can\n", time.Since(began).Seconds())
	session, err := observe.Load(label, dir, observe.Options{})
	if err != nil {
		return nil, Saw{}, err
	}
	saw := newSaw(session)
	if saw.Certificates, err = s.probe(ctx, session); err != nil {
		return nil, saw, err
	}
	saw.Sites, err = sitesIn(dir, saw.Certificates)
	return session, saw, err
}

// newSaw reads what a passive observer got.
func newSaw(s *observe.Session) Saw {
	o := s.Observers[0]
	e := s.Report().Observers[0]
	saw := Saw{DNS: []string{}, TLS: []string{}, Servers: []string{}, Bytes: e.Bytes}
	for _, n := range e.Names {
		switch n.From {
		case inspect.FromDNS:
			saw.DNS = append(saw.DNS, n.Name)
		case inspect.FromTLS:
			saw.TLS = append(saw.TLS, n.Name)
		}
	}
	for _, f := range o.Flows {
		if f.Transport != "tcp" {
			continue
		}
		saw.Connections++
		if at := f.Server.Addr().String(); !slices.Contains(saw.Servers, at) {
			saw.Servers = append(saw.Servers, at)
		}
	}
	return saw
}

// probePatience bounds one question of the observer's.
const probePatience = 20 * time.Second

// probe asks each server that the client spoke to, by the name that the client used, and returns the names in the certificates.
func (s *cloudStage) probe(ctx context.Context, session *observe.Session) ([]string, error) {
	asked, names := map[string]bool{}, []string{}
	for _, f := range session.Observers[0].Flows {
		for _, n := range f.Names {
			if key := f.Server.String() + n.Name; n.From != inspect.FromTLS || asked[key] {
				continue
			} else {
				asked[key] = true
			}
			c, err := s.dial(ctx, f.Server)
			if err != nil {
				return nil, fmt.Errorf("ask %s for its certificate: %w", f.Server, err)
			}
			for _, name := range shown(ctx, c, n.Name) {
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	return names, nil
}

// shown returns the names in the certificate that a server shows to somebody without a certificate of his own; none if it shows none.
func shown(ctx context.Context, c net.Conn, name string) (names []string) {
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	config := &tls.Config{ServerName: name, InsecureSkipVerify: true, VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
		for _, der := range raw {
			if leaf, err := x509.ParseCertificate(der); err == nil {
				names = append(names, leaf.DNSNames...)
			}
		}
		return nil
	}}
	_ = tls.Client(c, config).HandshakeContext(ctx) // the certificate comes before a refusal
	return names
}

// sitesIn lists the sites whose names are in the captures of a directory, or among the names.
func sitesIn(dir string, names []string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.pcapng"))
	if err != nil {
		return nil, err
	}
	var captured []byte
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		captured = append(captured, content...)
	}
	read := []string{}
	for _, site := range cloudSites {
		// A name in DNS has lengths in place of its dots.
		asked := fmt.Sprintf("%c%s%cexample", len(site.host), site.host, len("example"))
		if slices.Contains(names, site.name) || bytes.Contains(captured, []byte(site.name)) || bytes.Contains(captured, []byte(asked)) {
			read = append(read, site.name)
		}
	}
	return read, nil
}
