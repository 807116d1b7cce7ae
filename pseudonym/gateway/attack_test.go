package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"heddle/internal/clienthello"
	"heddle/internal/connlimit"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/ca/catest"
	"heddle/pseudonym/ech"
	"heddle/pseudonym/mutual"
)

// sidecar admits holders of pseudonyms, as that of a site does.
type sidecar struct {
	entries map[pseudonym.Label]*mutual.Entry
	at      string
}

func (s *sidecar) Pseudonym(_ context.Context, l pseudonym.Label) (*mutual.Entry, error) {
	if e := s.entries[l]; e != nil {
		return e, nil
	}
	return nil, pseudonym.ErrNone
}

func newSidecar(t *testing.T) *sidecar {
	t.Helper()
	s := &sidecar{entries: map[pseudonym.Label]*mutual.Entry{}}
	names, err := mutual.NewServer(zone, s, 100, "http/1.1")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.at = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- names.Serve(ctx, Introduced(l, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}), connlimit.NewPlaces(connlimit.Guests), func(c *tls.Conn, _ *mutual.Entry) {
			defer c.Close()
			io.Copy(c, c)
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// register makes a pseudonym of a site as the store does, and returns what its holder needs.
func (s *sidecar) register(t *testing.T, issuer *ca.Issuer, root *x509.Certificate, site string) (pseudonym.Label, *tls.Config) {
	t.Helper()
	l, server, client, now := pseudonym.NewLabel(), catest.NewKey(t), catest.NewKey(t), time.Now()
	cert, err := issuer.Server(zone.Name(l), server.Public(), now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(server)
	if err != nil {
		t.Fatal(err)
	}
	own, err := ca.Client(zone.Name(l), client, now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	s.entries[l] = &mutual.Entry{Label: l, Site: site, Client: ca.KeyOf(own), Expires: now.Add(time.Hour), Chain: append([][]byte{cert.Raw}, issuer.Chain()...), Key: key}
	roots := x509.NewCertPool()
	roots.AddCert(root)
	return l, &tls.Config{ServerName: zone.Name(l), RootCAs: roots, NextProtos: []string{"http/1.1"}, ClientSessionCache: tls.NewLRUClientSessionCache(1),
		Certificates: []tls.Certificate{{Certificate: [][]byte{own.Raw}, PrivateKey: client}}}
}

// ticket returns the identity of the session that a client resumes, as a network sees it (RFC 8446, section 4.2.11).
func ticket(t *testing.T, sent []byte) []byte {
	t.Helper()
	handshake, _, err := clienthello.Split(sent)
	if err != nil {
		t.Fatal(err)
	}
	h, err := clienthello.Parse(handshake)
	if err != nil {
		t.Fatal(err)
	}
	const preSharedKey = 41
	for _, e := range h.Extensions {
		if e.Type == preSharedKey && len(e.Body) > 4 {
			return e.Body[4:][:binary.BigEndian.Uint16(e.Body[2:])]
		}
	}
	return nil
}

// ECDSA signatures have a length that varies by some bytes, at random: those of two certificates, and two of the handshake.
const signatures = 4 * 3

// What a network sees of a handshake does not depend on the site (requirements R1 and R2): neither sizes nor what a resumed session shows. Two
// tickets of one sidecar have nothing in common, as a name of its key would be: an observer who is a user of a site would know other
// users of it by that.
func TestHandshakesTellNothing(t *testing.T) {
	issuer, root := catest.NewIssuer(t, string(zone))
	key := newKey(t, 1)
	type seen struct{ first, answer, again, ticket int }
	sizes := map[string][]seen{} // by site
	var tickets [][]byte
	r := &routes{to: map[pseudonym.Label][]string{}}
	_, at := start(t, r, nil, key)
	for _, site := range []string{"a.example", strings.Repeat("long", 12) + ".example"} {
		s := newSidecar(t)
		for range 4 {
			l, config := s.register(t, issuer, root, site)
			r.set(l, s.at)
			one, _, err := visit(t, at, config)
			if err != nil {
				t.Fatal(err)
			}
			two, state, err := visit(t, at, config)
			if err != nil || !state.DidResume {
				t.Fatalf("resumed: %v, %v", state.DidResume, err)
			}
			id := ticket(t, two.sent)
			if id == nil {
				t.Fatal("no session is resumed")
			}
			tickets = append(tickets, id)
			sizes[site] = append(sizes[site], seen{len(one.sent), len(one.came), len(two.sent), len(id)})

			// With an encrypted hello a session does not show at all.
			config.EncryptedClientHelloConfigList = ech.List(key.Config())
			hidden, state, err := visit(t, at, config)
			if err != nil || !state.DidResume || bytes.Contains(hidden.sent, []byte(l)) || bytes.Contains(hidden.sent, id[:16]) {
				t.Errorf("resumed: %v, %v", state.DidResume, err)
			}
		}
	}
	var least, most seen
	for _, all := range sizes {
		for _, s := range all {
			if least == (seen{}) {
				least, most = s, s
			}
			least = seen{min(least.first, s.first), min(least.answer, s.answer), min(least.again, s.again), min(least.ticket, s.ticket)}
			most = seen{max(most.first, s.first), max(most.answer, s.answer), max(most.again, s.again), max(most.ticket, s.ticket)}
		}
	}
	if most.first-least.first > signatures || most.answer-least.answer > signatures || most.again-least.again > signatures || most.ticket-least.ticket > signatures {
		t.Errorf("the sizes depend on the site: %+v", sizes)
	}
	const word = 8 // bytes; random ones are never the same
	known := map[string]int{}
	for i, id := range tickets {
		for at := range len(id) - word {
			piece := string(id[at : at+word])
			if j, ok := known[piece]; ok && j != i {
				t.Fatalf("the tickets %d and %d have %x in common", j, i, piece)
			}
			known[piece] = i
		}
	}
}
