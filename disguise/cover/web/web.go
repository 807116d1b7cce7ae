// Package web has the covers http and https: a website whose recording both ends have (package site). The bridge serves the site to
// everybody, and clients fetch its pages as a browser does. Over plain HTTP they hide blocks where the recording has random tokens: in
// requests, and in answers that differ at each visit. Inside TLS blocks take the place of whole bodies.
//
// Do not use it with a site that everybody has: a censor finds its original. Do not use it for sites whose scripts check tokens.
package web

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"heddle/disguise/cover"
	"heddle/disguise/site"
	"heddle/internal/errhint"
	"heddle/internal/pacing"
	"heddle/path"
)

// The names and numbers of the kinds: a website over plain HTTP/1.1, and one inside TLS.
const (
	Name      = "http"
	Number    = 3
	NameTLS   = "https"
	NumberTLS = 4
)

// Claim is what the cover http hides and what it does not.
const Claim = "a website that anybody can browse, with payload in tokens, pictures and encrypted media that differ at each visit anyway; filters " +
	"for Tor's cells, for fully encrypted traffic or for unusual headers do not tell it; hides neither " +
	"how much is sent nor when: what scripts fetch follows your traffic, so a filter that learnt from such connections, that looks for TLS inside by sizes, or at how printable first packets are, tells them from visitors'; " +
	"who has the recording finds tokens that no script made"

// browserConnections is how many connections browsers have to one website over HTTP/1.1 at most.
const browserConnections = 6

func init() {
	cover.Register(cover.Kind{Name: Name, Number: Number, Claim: Claim, Streams: true, Origin: true, New: New, Connections: browserConnections, Local: []string{"site", "agent"}, Both: []string{"site"},
		Args: map[string]string{
			"site":  "the file of the recorded site; both sides need the same one",
			"agent": "the User-Agent of the client's requests (default: a Chromium on Linux)",
		}})
}

// factory implements [cover.Host].
type factory struct {
	*catalogue
	number byte
	life   cover.Life
	agent  string
	seen   *answers
	binding
	visit  *visit // of the client
	quiet  time.Duration
	origin http.Handler // what is not the bridge's own; may be nil
	desk   *desk        // behind another web server; else nil
	*secure
	shares *pacing.Shares // of windows, by the clients' links
}

// New returns the factory of the cover http for the setting "site".
func New(o cover.Options) (cover.Factory, error) {
	s, err := open(Name, o)
	if err != nil {
		return nil, err
	}
	f, err := newFactory(s, o, Number)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// open reads the site of a cover.
func open(name string, o cover.Options) (*site.Site, error) {
	file := o.Args["site"]
	if file == "" {
		return nil, &path.Error{What: "cover " + name, Why: "it has no site", Hint: "set " + name + ":site=FILE; heddle disguise site import makes one"}
	}
	s, err := site.Open(file)
	if err != nil {
		return nil, &path.Error{What: "cover " + name, Err: err, Hint: errhint.Of(err)}
	}
	return s, nil
}

func newFactory(s *site.Site, o cover.Options, number byte) (*factory, error) {
	c, err := newCatalogue(s, number == NumberTLS)
	if err != nil {
		return nil, err
	}
	f := &factory{catalogue: c, number: number, life: o.Life, agent: cmp.Or(o.Args["agent"], agent), seen: newAnswers(), visit: newVisit(c), quiet: quietOf(o.Seed),
		binding: newBinding(o.Seed), secure: &secure{}, shares: &pacing.Shares{}}
	if o.Front.Origin != nil {
		f.origin = newOrigin(o.Front)
		clear(f.plain) // the origin knows what it does with other queries
	}
	if o.Front.Behind {
		f.desk = newDesk(f, o.Front.Visitor)
	}
	return f, nil
}

// parametersSize is the length of the parameters: number, fingerprint of the site, and the key of the connection's heads.
const parametersSize = 1 + 8 + headKey

// Client implements [cover.Factory].
func (f *factory) Client() (cover.Cover, []byte, error) {
	parameters := append([]byte{f.number}, f.site.Fingerprint[:]...)
	var key [headKey]byte
	_, _ = rand.Read(key[:]) // it never fails
	return &tab{factory: f, heads: newHeads(key[:]), marks: newMarks(key[:]), parts: order{most: mostEarly}}, append(parameters, key[:]...), nil
}

// Server implements [cover.Factory].
func (f *factory) Server(parameters []byte) (cover.Cover, error) {
	if len(parameters) != parametersSize || parameters[0] != f.number {
		return nil, fmt.Errorf("parameters %x are not those of a website", parameters)
	}
	if [8]byte(parameters[1:9]) != f.site.Fingerprint {
		return nil, ErrOtherSite
	}
	return &guest{factory: f, heads: newHeads(parameters[9:]), marks: newMarks(parameters[9:])}, nil
}

var errNoGauge = errors.New("a website needs a feed that tells how much waits")

// ErrOtherSite says that client and bridge have different sites.
var ErrOtherSite = errors.New("the client has another site")

// Leads implements [cover.Factory].
func (f *factory) Leads() []int { return []int{0} }

// guest is the bridge's end of a connection whose hello was read.
type guest struct {
	*factory
	heads *heads
	marks marks
}

// Carry implements [cover.Cover].
func (g *guest) Carry(ctx context.Context, c net.Conn, f cover.Feed) error {
	gauge, ok := f.(cover.Gauge)
	if !ok {
		return errNoGauge
	}
	v := &visitor{factory: g.factory}
	v.welcome(gauge, g)
	g.serve(ctx, c, v)
	return context.Cause(ctx)
}
