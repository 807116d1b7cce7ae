package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"heddle/board"
	"heddle/board/registry"
	"heddle/identity"
	"heddle/internal/errhint"
	"heddle/path"
	"heddle/stripe"
	"heddle/stripe/share"
)

// Stripe is the paths of a stream and how it is cut: shared by `heddle stream dial` and `heddle send`.
type Stripe struct {
	Via []string `toml:"via" help:"a path, <NAME=KIND:ARG>, such as a=node:tokyo; one flag a path" complete:"path"`
	// Path are extra paths for tunnels to ride; the nodes that Paths chooses ride them in turn.
	Path   []string      `toml:"path" help:"a path beside them, <NAME=KIND:ARG>, for tunnels to ride" complete:"path"`
	Secret []string      `toml:"secret" help:"the file that holds the password or token of a path, <NAME=FILE>"`
	Paths  int           `toml:"paths" help:"choose so many overlay nodes in place of --via; they ride the --path ones in turn"`
	Pick   string        `toml:"pick" help:"how nodes are chosen: {picks}" complete:"picks"`
	To     string        `toml:"to" help:"where the peer device listens, <HOST:PORT>; else the board says"`
	Key    string        `toml:"key" help:"the <KEY> of the peer device; else the board says"`
	Board  string        `toml:"board" help:"the board, <KEY@HOST:PORT> or a file; else the one that heddle board use keeps"`
	MaxAge time.Duration `toml:"max-age" help:"how old the board's last list may be where the board cannot be reached"`
	// Identity is the file of this device's key; empty is the user's own.
	Identity string `toml:"identity" help:"the <FILE> of this device's private key" complete:"file"`
	// Schedule is one of [StripeSchedules]; empty chooses by the shares.
	Schedule string        `toml:"schedule" help:"which path is next: strict (each in turn), fast (who has room), weighted" complete:"stripe-schedules"`
	Weight   []string      `toml:"weight" help:"for --schedule weighted, <NAME=NUMBER>; drawn at random where none is given"`
	Segment  int           `toml:"segment" help:"the size of a segment in bytes"`
	Shares   string        `toml:"shares" help:"cut into secret shares: none, 2of3, shamir:2of3, xor:3" complete:"none 2of3 3of4 shamir:2of3 xor:3"`
	MinPaths int           `toml:"min-paths" help:"paths it takes to send at all; 0 means all, or as many as restore shares"`
	Degrade  bool          `toml:"degrade" help:"go on over fewer paths, also with what a dead one did not carry"`
	Patience time.Duration `toml:"patience" help:"how long to wait for paths that are needed"`
	MinRate  int           `toml:"min-rate" help:"drop a path below so many bytes per second; -1 never does"`
	Keylog   string        `toml:"keylog" help:"write the keys of the TLS inside to <FILE>, for experiments" complete:"file"`
	// Backend is one of [StripeBackends].
	Backend        string `toml:"backend" old:"plane" help:"who carries it: {carriers}" complete:"carriers"`
	SetPathManager bool   `toml:"set-path-manager" help:"for mptcp, set net.mptcp.pm_type while a socket is made"`
}

// DefaultStripe returns the default settings.
func DefaultStripe() Stripe {
	return Stripe{Pick: PickDiverse, MaxAge: registry.DefaultMaxAge, Backend: BackendStripe, Segment: stripe.DefaultSegment, Shares: "none", Patience: stripe.DefaultPatience, MinRate: stripe.DefaultMinRate}
}

// The carriers of streams: Heddle, or the kernel's MPTCP through nodes in mode nat, as plain subflows or by source address.
const (
	BackendStripe   = "stripe"
	BackendMPTCP    = "mptcp"
	BackendMPTCPNAT = "mptcp-nat"
)

// StripeBackends are the backends of streams.
func StripeBackends() []string { return []string{BackendStripe, BackendMPTCP, BackendMPTCPNAT} }

// How nodes are chosen.
const (
	PickDiverse = "diverse" // seen together by the fewest networks, as far as a survey knows
	PickRTT     = "rtt"     // first to answer
	PickRandom  = "random"
)

// Picks are the ways to choose nodes.
func Picks() []string { return []string{PickDiverse, PickRTT, PickRandom} }

// StripeSchedules are the schedules of streams.
func StripeSchedules() []string { return []string{"strict", "fast", "weighted"} }

// problems returns the errors by key.
func (s Stripe) problems() problems {
	wrong := problems{}
	names := s.pathProblems(wrong)
	s.peerProblems(wrong)
	if s.Schedule != "" {
		wrong.add("schedule", oneOf("schedule", s.Schedule, StripeSchedules()))
	}
	_, err := s.weights(names)
	wrong.add("weight", err)
	if s.Segment < stripe.MinSegment || s.Segment > stripe.MaxSegment {
		wrong.say("segment", fmt.Sprintf("%d is no size of a segment", s.Segment), fmt.Sprintf("%d to %d bytes", stripe.MinSegment, stripe.MaxSegment))
	}
	scheme, err := share.Parse(s.Shares)
	wrong.add("shares", hinted(err, "none, 2of3, shamir:2of3 or xor:3"))
	paths := len(names) + s.Paths
	if err == nil && scheme.N > 1 && paths > 0 && scheme.N != paths {
		wrong.say("shares", fmt.Sprintf("%s makes %d shares, and there are %d paths", s.Shares, scheme.N, paths), "give as many paths as shares")
	}
	if s.MinPaths < 0 || s.MinPaths > paths {
		wrong.say("min-paths", fmt.Sprintf("%d paths are asked for, of %d", s.MinPaths, paths), "0 means all, or with shares as many as restore the stream")
	}
	wrong.add("backend", oneOf("backend", s.Backend, StripeBackends()))
	if s.Backend != BackendStripe && (s.Schedule != "" || s.Shares != "none" || len(s.Weight) > 0) {
		wrong.say("backend", "the kernel has its own schedule, and no shares", "leave out schedule, weight and shares, or take the backend stripe")
	}
	if s.Patience <= 0 {
		wrong.say("patience", fmt.Sprintf("%v is no time to wait", s.Patience), "a time such as 30s")
	}
	return wrong
}

// peerProblems checks the peer. A board supplies what is not given.
func (s Stripe) peerProblems(wrong problems) {
	if s.Board != "" {
		_, err := board.LoadReference(s.Board)
		wrong.add("board", err)
	}
	const orBoard = "; or --board"
	if s.To != "" || s.Board == "" {
		wrong.add("to", checkHostPort(s.To, "where the peer device listens, such as files.example:4470"+orBoard))
	}
	_, err := identity.ParseKey(s.Key)
	if s.Key == "" {
		err = errors.New("the peer's key is missing")
	}
	if s.Key != "" || s.Board == "" {
		wrong.add("key", hinted(err, "the peer's `heddle stream serve` prints its key"+orBoard))
	}
}

// pathProblems checks the paths, and returns the names of those to stripe over.
func (s Stripe) pathProblems(wrong problems) []string {
	c, names := checkPaths(s.Path, s.Via), namesOf(s.Via)
	for _, f := range c.findings {
		if !f.warning {
			wrong.say(fmt.Sprintf("%s[%d]", f.key, f.index), f.what, f.hint)
		}
	}
	for i, text := range s.Secret {
		if name, file, _ := strings.Cut(text, "="); c.names[name] {
			wrong.add(fmt.Sprintf("secret[%d]", i), checkSecret(name, file))
		}
	}
	if len(wrong) == 0 {
		if err := c.carry(names, path.Streams, "a stream"); err != nil {
			what, hint := explain(err)
			wrong.say("via", what, hint)
		}
	}
	switch {
	case s.Paths < 0 || s.Paths > stripe.MaxPaths:
		wrong.say("paths", fmt.Sprintf("%d nodes cannot be chosen", s.Paths), fmt.Sprintf("0 to %d", stripe.MaxPaths))
	case s.Paths > 0 && s.Backend != BackendStripe:
		wrong.say("paths", "the kernel backends go by the nodes that are given", "give --via NAME=node:NODE for each")
	case s.Paths > 0 && len(s.Via) > 0:
		wrong.say("paths", "nodes are to be chosen, and paths are given too", "give either --paths or --via")
	case s.Paths == 0 && len(s.Via) == 0:
		wrong.say("via", "no path is given", "write NAME=KIND:ARG, such as a=node:tokyo, once for each path; or --paths 3")
	}
	if !slices.Contains(Picks(), s.Pick) {
		wrong.say("pick", fmt.Sprintf("nodes are not chosen by %q", s.Pick), "ways: "+strings.Join(Picks(), ", "))
	}
	if s.Paths > 0 && len(s.Weight) > 0 {
		wrong.say("weight", "it is not known which nodes will be chosen", "give --via, or leave the weights to chance")
	}
	return names
}

// weights returns one weight for each path, or nil.
func (s Stripe) weights(names []string) ([]float64, error) {
	if len(s.Weight) == 0 {
		return nil, nil
	}
	const how = "write NAME=NUMBER for each path, such as --weight a=2 --weight b=1"
	given := map[string]float64{}
	for _, text := range s.Weight {
		name, number, _ := strings.Cut(text, "=")
		n, err := strconv.ParseFloat(number, 64)
		if err != nil || !(n > 0) || math.IsInf(n, 0) {
			return nil, &path.Error{What: fmt.Sprintf("weight %q", text), Why: "it is no NAME=NUMBER with a number above 0", Hint: how}
		}
		given[name] = n
	}
	var weights []float64
	for _, name := range names {
		n, ok := given[name]
		if !ok {
			return nil, &path.Error{What: "weight", Why: "path " + name + " has none", Hint: how}
		}
		weights = append(weights, n)
	}
	if len(given) != len(names) {
		return nil, &path.Error{What: "weight", Why: "one names a path that is not there", Hint: "paths: " + strings.Join(names, ", ")}
	}
	if s.Schedule != "weighted" {
		return nil, &path.Error{What: "weight", Why: "the schedule is not weighted", Hint: "add --schedule weighted"}
	}
	return weights, nil
}

// Options converts the settings to a session's options. The caller adds To, Identity, Service, Log and KeyLog, the
// paths by chosen nodes, and the peer from a board. bases are the paths that those nodes ride in turn.
func (s Stripe) Options() (o stripe.Options, bases []path.Path, err error) {
	o = stripe.Options{Schedule: s.Schedule, Segment: s.Segment, Shares: s.Shares, MinPaths: s.MinPaths, Degrade: s.Degrade, Patience: s.Patience, MinRate: s.MinRate}
	specs, err := parseSpecs(slices.Concat(s.Via, s.Path))
	if err != nil {
		return o, nil, err
	}
	ways, err := path.NewSet(specs, path.Options{Secret: secrets(s.Secret), Identity: s.Identity})
	if err != nil {
		return o, nil, err
	}
	for _, spec := range specs[len(s.Via):] {
		bases = append(bases, ways[spec.Name])
	}
	var names []string
	for _, spec := range specs[:len(s.Via)] {
		if err := path.Need(ways[spec.Name], path.Streams, "a stream"); err != nil {
			return o, nil, err
		}
		o.Paths = append(o.Paths, stripe.Path{Name: spec.Name, Path: ways[spec.Name]})
		names = append(names, spec.Name)
	}
	if o.Weights, err = s.weights(names); err != nil {
		return o, nil, err
	}
	if s.Key != "" {
		o.Peer, err = identity.ParseKey(s.Key)
	}
	return o, bases, err
}

// problems are errors by key.
type problems map[string]error

func (p problems) add(key string, err error) {
	if err != nil && p[key] == nil {
		p[key] = err
	}
}

func (p problems) say(key, why, hint string) {
	p.add(key, &path.Error{What: key, Why: why, Hint: hint})
}

// first returns one error, named by its flag.
func (p problems) first() error {
	keys := slices.Sorted(maps.Keys(p))
	if len(keys) == 0 {
		return nil
	}
	what, hint := explainFlat(p[keys[0]])
	flag, _, _ := strings.Cut(keys[0], "[")
	return &path.Error{What: "--" + flag, Why: what, Hint: hint}
}

// explainFlat removes from an error what is printed beside it.
func explainFlat(err error) (what, hint string) {
	if known, ok := err.(*path.Error); ok && known.Err == nil {
		return cmp.Or(known.Why, known.What), known.Hint
	}
	return explain(err)
}

func hinted(err error, hint string) error {
	if err == nil {
		return nil
	}
	if errhint.Of(err) != "" {
		return err
	}
	return &path.Error{Why: err.Error(), Hint: hint}
}

// oneOf returns an error unless the value is one of there.
func oneOf(noun, value string, there []string) error {
	if slices.Contains(there, value) {
		return nil
	}
	return &path.Error{What: fmt.Sprintf("no %s is called %q", noun, value), Hint: noun + "s: " + strings.Join(there, ", ")}
}

func checkHostPort(text, example string) error { return CheckHostPort(text, text, example) }

// CheckHostPort returns an error, about what, for a text that is not HOST:PORT.
func CheckHostPort(what, text, example string) error {
	if text == "" {
		return &path.Error{Why: "no HOST:PORT is given", Hint: example}
	}
	host, port, err := net.SplitHostPort(text)
	if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || n == 0 || host == "" {
		return &path.Error{What: what, Why: fmt.Sprintf("%q is not HOST:PORT", text), Hint: example}
	}
	return nil
}

// checkListen checks [HOST]:PORT, where port 0 is any free port.
func checkListen(text string) error {
	_, port, err := net.SplitHostPort(text)
	if _, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil {
		return &path.Error{What: text, Why: fmt.Sprintf("%q is not HOST:PORT", text), Hint: "such as :4470 or 127.0.0.1:2222"}
	}
	return nil
}

// loadFlat reads a file without tables into a struct, and reports all errors.
func loadFlat(file string, into any, check func() problems) error {
	data, err := read(file)
	if err != nil {
		return Problems{{File: file, Severity: SeverityError, What: reason(err)}}
	}
	doc := decode(file, data, into)
	for key, err := range check() {
		if doc.wrongs[key] {
			continue
		}
		what, hint := explainFlat(err)
		doc.report(doc.places[key], SeverityError, key, what, hint)
	}
	if wrong := doc.sorted().Errors(); len(wrong) > 0 {
		return wrong
	}
	return nil
}

// isDir returns an error unless name is a directory.
func isDir(name string) error {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return &path.Error{What: name, Why: reason(err), Hint: "make it first: mkdir " + name}
	case !info.IsDir():
		return &path.Error{What: name, Why: "it is no directory"}
	}
	return nil
}

// Check returns one error, named by its flag.
func (s Stripe) Check() error { return s.problems().first() }
