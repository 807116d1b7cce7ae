// Package web is the cover http: a website over HTTP/1.1 whose recording both ends have (package site). The bridge serves the site to
// everybody. Clients fetch its pages as a browser does, and hide blocks where the recording has random tokens: in requests,
// and in answers that differ at each visit.
//
// Do not use it with a site that everybody has: a censor finds its original. Do not use it for sites whose scripts check tokens.
package web

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"

	"heddle/disguise/cover"
	"heddle/disguise/site"
	"heddle/internal/errhint"
	"heddle/path"
)

// Name and Number are those of the kind.
const (
	Name   = "http"
	Number = 3
)

// Claim is what the cover hides and what it does not.
const Claim = "a website that anybody can browse, with payload in tokens, pictures and encrypted media that differ at each visit anyway; hides neither " +
	"how much is sent nor when: what scripts fetch follows your traffic; who has the recording finds tokens that no script made"

func init() {
	cover.Register(cover.Kind{Name: Name, Number: Number, Claim: Claim, Streams: true, New: New, Local: []string{"site", "agent"},
		Args: map[string]string{
			"site":  "the file of the recorded site; both sides need the same one",
			"agent": "the User-Agent of the client's requests (default: a Chromium on Linux)",
		}})
}

// factory implements [cover.Host].
type factory struct {
	*catalogue
	life  cover.Life
	agent string
	seen  *answers
	visit *visit // of the client
	quiet time.Duration
}

// New returns the factory for the setting "site".
func New(o cover.Options) (cover.Factory, error) {
	file := o.Args["site"]
	if file == "" {
		return nil, &path.Error{What: "cover " + Name, Why: "it has no site", Hint: "set http:site=FILE; heddle disguise site import makes one"}
	}
	s, err := site.Open(file)
	if err != nil {
		return nil, &path.Error{What: "cover " + Name, Err: err, Hint: errhint.Of(err)}
	}
	return FactoryOf(s, o)
}

// FactoryOf returns the factory of covers that hide in a site.
func FactoryOf(s *site.Site, o cover.Options) (cover.Factory, error) {
	c, err := newCatalogue(s)
	if err != nil {
		return nil, err
	}
	f := &factory{catalogue: c, life: o.Life, agent: o.Args["agent"], seen: newAnswers(), visit: newVisit(c), quiet: quietOf(o.Seed)}
	if f.agent == "" {
		f.agent = agent
	}
	return f, nil
}

// parametersSize is the length of the parameters: number, fingerprint of the site, and the key of the connection's heads.
const parametersSize = 1 + 8 + headKey

// Client implements [cover.Factory].
func (f *factory) Client() (cover.Cover, []byte, error) {
	parameters := append([]byte{Number}, f.site.Fingerprint[:]...)
	var key [headKey]byte
	_, _ = rand.Read(key[:]) // it never fails
	return &tab{factory: f, heads: newHeads(key[:])}, append(parameters, key[:]...), nil
}

// Server implements [cover.Factory].
func (f *factory) Server(parameters []byte) (cover.Cover, error) {
	if len(parameters) != parametersSize || parameters[0] != Number {
		return nil, fmt.Errorf("parameters %x are not those of the cover %s", parameters, Name)
	}
	if [8]byte(parameters[1:9]) != f.site.Fingerprint {
		return nil, ErrOtherSite
	}
	return &guest{factory: f, heads: newHeads(parameters[9:])}, nil
}

// ErrOtherSite says that client and bridge have different sites.
var ErrOtherSite = errors.New("the client has another site")

// Leads implements [cover.Factory].
func (f *factory) Leads() []int { return []int{0} }

// guest is the bridge's end of a connection whose hello was read.
type guest struct {
	*factory
	heads *heads
}

// Carry implements [cover.Cover].
func (g *guest) Carry(ctx context.Context, c net.Conn, f cover.Feed) error {
	gauge, ok := f.(cover.Gauge)
	if !ok {
		return fmt.Errorf("the cover %s needs a feed that tells how much waits", Name)
	}
	g.serve(ctx, c, &visitor{factory: g.factory, feed: gauge, heads: g.heads})
	return context.Cause(ctx)
}
