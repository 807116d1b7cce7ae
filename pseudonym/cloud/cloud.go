// Package cloud puts the parts of a cloud's pseudonyms together: keys, store, nameserver and gateway.
package cloud

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"heddle/internal/connlimit"
	"heddle/internal/netutil"
	"heddle/pseudonym"
	"heddle/pseudonym/audit"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/database"
	"heddle/pseudonym/gateway"
	"heddle/pseudonym/gateway/lead"
	"heddle/pseudonym/linker"
	"heddle/pseudonym/mutual"
	"heddle/pseudonym/store"
	"heddle/pseudonym/zone"
)

// The cloud's own names, below its zone.
const (
	StoreLabel   = "store"  // as in [pseudonym.Zone.Store]
	LinkerLabel  = "linker" // as in [pseudonym.Zone.Linker]
	TenantsLabel = "tenants"
)

// Options configure a cloud.
type Options struct {
	Zone     pseudonym.Zone
	Dir      string // of the files
	Database string // a URL of PostgreSQL, or the file of SQLite
	Gateways []netip.Addr
	Stores   []string       // HOST:PORT, where gateways find the stores
	Linkers  []string       // HOST:PORT, where gateways find the linkers
	From     []netip.Prefix // where gateways come from to both
	Life     time.Duration
	Most     int
	Work     int    // see [store.Options]
	Login    string // URL of a provider of accounts; empty if people need none
	Client   string // how the provider knows the store
	Secret   string // file of what proves that to the provider
	Audit    string // file of the audit log; empty for none
	Mode     gateway.Mode
	Switch   lead.Kind    // of connections that move
	Bridge   string       // of Open vSwitch, which the kind OVS needs
	Shares   bool         // the switch of connections that move notes them in the database, and leads what others noted
	SwitchAt string       // file of the socket of the process that holds and leads what moves; the gateway's own process does so if it is empty
	Prefix   netip.Prefix // of pseudo-addresses, a /64 that is routed to the switch; none if it is not valid
	Device   string       // where clients' packets arrive at the switch
	Ports    []uint16     // that the switch leads to tenants, those of the gateway
	// Certificate and Key are files with a public certificate of the store's and the linker's plain names. Without them it is one of
	// the cloud's own CA.
	Certificate, Key string
	Log              *slog.Logger
}

// Cloud is open until [Cloud.Close].
type Cloud struct {
	o         Options
	db        *database.DB
	issuer    *ca.Issuer
	root      *x509.Certificate
	store     *store.Store
	way       *gateway.Gateway
	router    *router // nil if there is no gateway
	hellos    *hellos
	own       *own           // nil if there is no store
	known     sync.Once      // that hellos are kept
	audit     *audit.Log     // nil if there is none
	linker    *linker.Linker // nil if it does not run
	names     zone.Counter
	addresses *addresses // nil if there are none, or no part of this process uses them
	parts     Parts
	cleaner   *cleaner       // nil if the store does not run
	shared    *shared        // nil if no switch of this process shares
	holder    gateway.Holder // for gateways of other processes; nil if the switch does not run, or leads pseudo-addresses alone
}

// Parts are what a process runs of a cloud. Each part gets the keys that it needs and no others: a gateway that is
// broken into cannot sign, and cannot read the keys of servers.
type Parts struct{ Store, Linker, Gateway, DNS, Switch bool }

// Open reads the keys and opens the database, as far as the parts need them.
func Open(ctx context.Context, o Options, p Parts) (*Cloud, error) {
	c := &Cloud{o: o, parts: p}
	var err error
	if p.Store || p.Linker {
		if c.issuer, c.root, err = readIssuer(o.Dir, o.Zone, time.Now()); err != nil {
			return nil, err
		}
	}
	var seal *database.Seal
	if p.Gateway {
		if seal, err = readGatewaySeal(o.Dir); err != nil {
			return nil, err
		}
	}
	c.hellos = newHellos(o.Zone, seal, o.Log)
	if p.Store || p.Linker || p.Gateway || p.Switch && (o.addresses() || o.Shares) {
		if c.db, err = openDatabase(ctx, o, p.Store); err != nil {
			return nil, err
		}
	}
	way := gateway.Options{Zone: o.Zone, Own: map[string][]string{o.Zone.Store(): o.Stores, o.Zone.Linker(): o.Linkers}, Mode: o.Mode, Log: o.Log}
	if p.Store {
		c.own = newOwn(ctx, o.Zone.Store(), c.db, o.Log)
	}
	if p.Gateway {
		if c.router, err = newRouter(c.db.Route, o.Log); err != nil {
			return nil, errors.Join(err, c.db.Close())
		}
		c.router.valid = c.db.Valid
		c.router.store = &route{site: o.Zone.Store(), to: placeOf(database.Tenant{Addresses: o.Stores})}
		way.Router = c.router
		if err := c.hellos.begin(ctx, c.db, time.Now()); err != nil {
			return nil, errors.Join(err, c.db.Close())
		}
		if seal != nil {
			way.Hellos = c.hellos.accepted
		}
		if way.Mover, err = newMover(o, seal, c.openSwitch); err != nil {
			return nil, errors.Join(err, c.db.Close())
		}
	}
	c.way = gateway.New(way)
	if p.Linker {
		c.linker = linker.New(o.Zone, c.db, o.Log)
	}
	if err := c.openAddresses(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if p.Switch && o.SwitchAt != "" {
		if c.holder, err = c.openSwitch(); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	if !p.Store {
		return c, nil
	}
	if err := c.openStore(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.cleaner = c.newCleaner()
	return c, nil
}

// OpenDatabase opens the database alone, for commands. It cannot read the keys of servers.
func OpenDatabase(ctx context.Context, o Options) (*database.DB, error) {
	return openDatabase(ctx, o, false)
}

func openDatabase(ctx context.Context, o Options, keys bool) (*database.DB, error) {
	if !keys {
		return database.Open(ctx, o.Database, nil, o.Log)
	}
	seal, err := readSeal(o.Dir)
	if err != nil {
		return nil, err
	}
	return database.Open(ctx, o.Database, seal, o.Log)
}

// Close closes the database and the audit log.
func (c *Cloud) Close() error {
	var errs []error
	if c.audit != nil {
		errs = append(errs, c.audit.Say(eventEnded, ""), c.audit.Close())
	}
	if c.Leads() {
		errs = append(errs, c.addresses.leads.Close())
	}
	if c.shared != nil {
		c.shared.Close()
	}
	if c.db != nil {
		errs = append(errs, c.db.Close())
	}
	return errors.Join(errs...)
}

// ServeGateway leads clients to tenants until ctx ends.
func (c *Cloud) ServeGateway(ctx context.Context, l net.Listener) error {
	changes, cancel := c.db.Watch()
	defer cancel()
	c.keepHellos(ctx)
	go c.follow(ctx, changes)
	return c.way.Serve(ctx, l)
}

// follow has the gateway take changes. What it asks the database for waits until no other change does, as a database that is slow must not delay a
// revocation.
func (c *Cloud) follow(ctx context.Context, changes <-chan database.Change) {
	look := false
	for change := range changes {
		c.router.drop(change.Label)
		c.way.Forget(ctx, change.Label)
		if look = look || many(change.Label); look && len(changes) == 0 {
			c.router.look(ctx, c.db.Tenants)
			look = false
		}
	}
}

// ServeHolds holds connections that gateways of this machine move, until ctx ends.
func (c *Cloud) ServeHolds(ctx context.Context, l net.Listener) error {
	return gateway.ServeHolds(ctx, l, c.holder)
}

// keepHellos knows the keys for encrypted hellos until ctx ends, which is that of all parts.
func (c *Cloud) keepHellos(ctx context.Context) {
	c.known.Do(func() { go c.hellos.keep(ctx, c.open) })
}

// named returns a certificate for one of the cloud's own names. It lives as long as the process may.
func (c *Cloud) named(label string) (tls.Certificate, error) {
	key, err := ca.NewKey()
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	cert, err := c.issuer.Server(label+"."+string(c.o.Zone), key.Public(), now, now.Add(2*365*24*time.Hour))
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: append([][]byte{cert.Raw}, c.issuer.Chain()...), PrivateKey: key}, nil
}

// ServeStore serves people until ctx ends: by its name, and by pseudonyms of it.
func (c *Cloud) ServeStore(ctx context.Context, l net.Listener) error {
	own, err := c.plain(StoreLabel)
	if err != nil {
		return err
	}
	names, err := mutual.NewServer(c.o.Zone, storeSource{c}, mutual.DefaultSize, "h2", "http/1.1")
	if err != nil {
		return err
	}
	c.keepOwn(ctx)
	changes, cancel := c.db.Watch()
	defer cancel()
	go func() {
		for change := range changes {
			names.Forget(ctx, change.Label)
		}
	}()
	go c.cleaner.keep(ctx)
	c.keepHellos(ctx)
	// The store's name is the one in clear of encrypted hellos, so a client with an old key lands here and learns the new one. Only this
	// configuration has that: a hello that the gateways cannot open is not for the store to open.
	pseudonyms, plain := names.Config(), &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: own, NextProtos: []string{"h2", "http/1.1"},
		GetEncryptedClientHelloKeys: c.hellos.retry}
	config := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: plain.NextProtos, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		if h.ServerName == c.o.Zone.Store() {
			return plain, nil
		}
		return pseudonyms.GetConfigForClient(h)
	}}
	return serveHTTP(ctx, gateway.Introduced(l, c.o.From), config, c.entrances(names), c.o.Log)
}

// entrances lets people into the store: by its name, or by their own pseudonym of it, by which the store knows them.
func (c *Cloud) entrances(names *mutual.Server) http.Handler {
	users := c.store.Users()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil && r.TLS.ServerName == c.o.Zone.Store() {
			users.ServeHTTP(w, r)
			return
		}
		e, ok := names.Visit(w, r)
		if !ok {
			return
		}
		// What the server knows may stand in for the database, which alone lets a person in.
		p, err := c.store.Valid(r.Context(), e.Label)
		if err != nil {
			c.store.Fail(w, r, err)
			return
		}
		if err := c.store.Prolong(r.Context(), p); err != nil {
			c.o.Log.Warn("a pseudonym of the store cannot be renewed", "error", err)
		}
		users.ServeHTTP(w, store.By(r, p.Owner))
	})
}

// ServeLinker serves people who follow links between sites, until ctx ends.
func (c *Cloud) ServeLinker(ctx context.Context, l net.Listener) error {
	own, err := c.plain(LinkerLabel)
	if err != nil {
		return err
	}
	people, err := mutual.Issuers(string(c.o.Zone))
	if err != nil {
		return err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: own, NextProtos: []string{"h2", "http/1.1"}, ClientAuth: tls.RequestClientCert, ClientCAs: people}
	return serveHTTP(ctx, gateway.Introduced(l, c.o.From), config, c.linker, c.o.Log)
}

// storeSource has the pseudonyms of the store.
type storeSource struct{ *Cloud }

func (s storeSource) Pseudonym(ctx context.Context, l pseudonym.Label) (*mutual.Entry, error) {
	e, err := s.store.Entry(ctx, l)
	if err == nil && e.Site != s.o.Zone.Store() {
		return nil, pseudonym.ErrNone
	}
	return e, err
}

// Kept implements [mutual.Keeper]. Names of which the store knows nothing, which gateways lead here too, look like its own to all but the holders of these.
func (s storeSource) Kept(l pseudonym.Label) *mutual.Entry {
	h, ok := s.own.find(l)
	if !ok || !time.Now().Before(h.Expires) {
		h = database.Holder{Label: l, Capability: pseudonym.NewCapability()}
		_, _ = rand.Read(h.Client[:]) // it never fails
	}
	e, err := s.store.StandIn(h)
	if err != nil {
		return nil
	}
	return e
}

// ServeTenants serves sidecars until ctx ends.
func (c *Cloud) ServeTenants(ctx context.Context, l net.Listener) error {
	own, err := c.named(TenantsLabel)
	if err != nil {
		return err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, NextProtos: []string{"h2", "http/1.1"}, ClientAuth: tls.RequireAnyClientCert}
	return serveHTTP(ctx, limited{l, connlimit.NewPlaces(connlimit.Guests)}, config, c.store.Tenants(), c.o.Log)
}

// limited bounds the connections of strangers. That a connection sends a request proves nothing, so all count.
type limited struct {
	net.Listener
	places *connlimit.Places
}

func (l limited) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.places.Enter(c), nil
}

// Times that the store's servers wait.
const (
	headerFor = 10 * time.Second
	idleFor   = time.Minute
	endFor    = 2 * time.Second
)

// serveHTTP serves until ctx ends.
func serveHTTP(ctx context.Context, l net.Listener, config *tls.Config, h http.Handler, log *slog.Logger) error {
	web := &http.Server{Handler: h, TLSConfig: config, ReadHeaderTimeout: headerFor, ReadTimeout: headerFor, IdleTimeout: idleFor, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), BaseContext: func(net.Listener) context.Context { return ctx }}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		end, cancel := context.WithTimeout(context.Background(), endFor)
		defer cancel()
		if web.Shutdown(end) != nil {
			web.Close()
		}
	})
	err := web.ServeTLS(netutil.Patient(l), "", "")
	if !stop() {
		<-ended
		return nil
	}
	return err
}
