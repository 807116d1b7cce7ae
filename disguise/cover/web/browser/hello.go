// Package browser speaks TLS and HTTP/2 as a browser does. Do not use it to hide from the server: it knows a browser by more than this.
package browser

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	_ "embed"
	"errors"
	"io"
	"net"
	"os"
	"slices"

	tls "github.com/refraction-networking/utls"

	"heddle/internal/clienthello"
	"heddle/internal/errhint"
)

// Hello is how a browser begins TLS.
type Hello struct {
	preset tls.ClientHelloID // of the library; used if there is no recording
	record []byte            // a ClientHello in its TLS record
}

// chromium was recorded from Chromium 156 on Linux in a fresh profile. It names the server localhost.
//
//go:embed chromium.hello
var chromium []byte

// HelloOf returns the hello with a name: chrome, firefox, or a file with one that was recorded. "" is chrome.
func HelloOf(name string) (Hello, error) {
	switch name {
	case "", "chrome":
		return Recorded(chromium)
	case "firefox":
		return Hello{preset: tls.HelloFirefox_Auto}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return Hello{}, &errhint.Error{What: "ClientHello " + name, Why: "it cannot be read", Err: err, Hint: "chrome, firefox, or a file that `heddle disguise hello` recorded"}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, clienthello.Limit+1))
	if err != nil {
		return Hello{}, &errhint.Error{What: "ClientHello " + name, Why: "it cannot be read", Err: err}
	}
	h, err := Recorded(data)
	if err != nil {
		return h, &errhint.Error{What: "ClientHello " + name, Err: err, Hint: "record one with `heddle disguise hello`, from a browser that has not visited that address before"}
	}
	return h, nil
}

// Numbers of extensions (IANA registry) that belong to an earlier connection.
const (
	preSharedKey = 41
	earlyData    = 42
)

// recordHeader is the length of what precedes a hello, in bytes (RFC 8446, section 5.1).
const recordHeader = 5

// Recorded returns a hello that a browser sent. It ignores all bytes behind the first record.
func Recorded(record []byte) (Hello, error) {
	said, err := clienthello.Parse(clienthello.Handshake(record))
	has := func(kind uint16) bool {
		return slices.ContainsFunc(said.Extensions, func(e clienthello.Extension) bool { return e.Type == kind })
	}
	switch {
	case err != nil:
		return Hello{}, err
	case said.ServerName == "":
		return Hello{}, errors.New("it names no server, so the browser was sent to an address rather than to a name")
	case has(preSharedKey) || has(earlyData):
		return Hello{}, errors.New("it resumes an earlier connection")
	case !slices.Contains(said.Versions, tls.VersionTLS13):
		return Hello{}, errors.New("it offers no TLS 1.3")
	case said.Encrypted == clienthello.Inner:
		return Hello{}, errors.New("it is the encrypted part of another one")
	}
	size := recordHeader + int(record[3])<<8 + int(record[4])
	if len(record) < size {
		return Hello{}, clienthello.ErrIncomplete
	}
	h := Hello{record: bytes.Clone(record[:size])}
	_, err = h.spec()
	return h, err
}

// spec returns the hello for one connection, for none of which it is the same.
func (h Hello) spec() (*tls.ClientHelloSpec, error) {
	if h.record == nil {
		spec, err := tls.UTLSIdToSpec(h.preset)
		return &spec, err
	}
	spec, err := (&tls.Fingerprinter{AllowBluntMimicry: true}).RawClientHello(h.record)
	if err != nil {
		return nil, err
	}
	greased := false
	for _, e := range spec.Extensions {
		switch e := e.(type) {
		case *tls.UtlsGREASEExtension:
			greased = true
		case *tls.SignatureAlgorithmsExtension: // the library draws all values of GREASE but these
			for i, s := range e.SupportedSignatureAlgorithms {
				if isGREASE(uint16(s)) {
					e.SupportedSignatureAlgorithms[i] = tls.SignatureScheme(drawGREASE())
				}
			}
		}
	}
	if greased { // a browser of the family of Chromium, which draws the order of extensions for each connection
		spec.Extensions = tls.ShuffleChromeTLSExtensions(spec.Extensions)
	}
	return spec, nil
}

// isGREASE tells values that mean nothing (RFC 8701).
func isGREASE(v uint16) bool { return v&0x0f0f == 0x0a0a && v>>8 == v&0xff }

func drawGREASE() uint16 {
	var b [1]byte
	_, _ = rand.Read(b[:]) // it never fails
	return uint16(b[0]&0xf0|0x0a) * 0x0101
}

// Pin is the SHA-256 of the public key of a server's certificate, in its SubjectPublicKeyInfo (RFC 5280, section 4.1).
type Pin [sha256.Size]byte

// PinOf returns the pin of a certificate.
func PinOf(c *x509.Certificate) Pin { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }

// Server is whom a connection leads to.
type Server struct {
	Name  string         // in the hello, and in the certificate if there is no pin
	Roots *x509.CertPool // nil are those of the system
	Pin   *Pin           // takes the place of authorities and of the name in the certificate
}

// ErrOldTLS says that a server speaks no TLS 1.3, so that an observer sees its certificate.
var ErrOldTLS = errors.New("the server speaks no TLS 1.3")

// Client is a connection on which the handshake is over.
type Client struct {
	*tls.UConn
	HTTP2 bool // the server chose HTTP/2, and not HTTP/1.1
}

// Dial does the handshake on c. When it fails, c is of no use.
func (h Hello) Dial(ctx context.Context, c net.Conn, to Server) (*Client, error) {
	spec, err := h.spec()
	if err != nil {
		return nil, err
	}
	config := &tls.Config{ServerName: to.Name, RootCAs: to.Roots, DynamicRecordSizingDisabled: true} // browsers fill records from the first one on
	if to.Pin != nil {
		config.InsecureSkipVerify = true
		config.VerifyPeerCertificate = to.Pin.check
	}
	u := tls.UClient(c, config, tls.HelloCustom)
	if err := u.ApplyPreset(spec); err != nil {
		return nil, err
	}
	if err := u.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	state := u.ConnectionState()
	if state.Version != tls.VersionTLS13 {
		return nil, ErrOldTLS
	}
	return &Client{u, state.NegotiatedProtocol == "h2"}, nil
}

func (p Pin) check(chain [][]byte, _ [][]*x509.Certificate) error {
	if len(chain) == 0 {
		return errors.New("the server has no certificate")
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return err
	}
	if got := PinOf(leaf); subtle.ConstantTimeCompare(got[:], p[:]) != 1 {
		return errors.New("the server has another key than the pinned one")
	}
	return nil
}

// Record reads what a browser says first on a connection, and answers nothing. The result is one for [Recorded].
func Record(c io.Reader) ([]byte, error) {
	var said []byte
	for b := make([]byte, 4096); ; {
		n, err := c.Read(b)
		said = append(said, b[:n]...)
		switch _, wrong := clienthello.Parse(clienthello.Handshake(said)); {
		case wrong == nil:
			_, err := Recorded(said)
			return said, err
		case !errors.Is(wrong, clienthello.ErrIncomplete) || len(said) > clienthello.Limit || len(said) > 0 && said[0] != recordHandshake:
			return nil, errors.New("it is no ClientHello")
		case err != nil:
			return nil, err
		}
	}
}

// recordHandshake is the type of a record (RFC 8446, section 5.1).
const recordHandshake = 22
