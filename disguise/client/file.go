package client

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"time"

	"heddle/disguise/cover"
	"heddle/disguise/handshake"
	"heddle/internal/text"
	"heddle/path"
)

// Bridge is how to reach a bridge, and by which covers: a bridge.toml, or flags. The bridge line may hold a token, so it is no flag.
type Bridge struct {
	Line        string        `toml:"bridge"`
	Cover       cover.Specs   `toml:"cover" help:"what the connections look like, <NAME[:SETTING=VALUE]>; several share a link by their weight, as https:weight=2; what the bridge line names where it is not given"`
	Connections int           `toml:"connections" help:"how many connections carry a link at a time; 0 is 1 for each path with the cover https, 6 with http, and else 4; with several covers it is so many that none has more"`
	MaxBytes    string        `toml:"max-bytes-per-connection" help:"replace a connection after <SIZE> in either direction, such as 15kB; 0 never does"`
	MaxAge      time.Duration `toml:"max-age" help:"replace a connection after so long at most; 0 never does"`
}

// DefaultBridge returns the default settings.
func DefaultBridge() Bridge { return Bridge{MaxBytes: "0"} }

// DefaultCover is the cover if neither file nor bridge line names one.
const DefaultCover = "random"

// Options converts the settings to the options of links. The caller adds paths and the log.
func (b Bridge) Options() (o Options, err error) {
	if b.Line == "" {
		return o, &path.Error{What: "bridge", Why: "there is no bridge line", Hint: `write bridge = "Bridge heddle ..." into the file, as its owner gave it to you`}
	}
	if o.Line, err = handshake.ParseLine(b.Line); err != nil {
		return o, err
	}
	life, err := b.life()
	if err != nil {
		return o, err
	}
	specs := b.covers(o.Line)
	for i, spec := range specs {
		name, args, err := cover.ParseSpec(spec)
		if err != nil {
			return o, err
		}
		if i > 0 && o.Datagrams != cover.OverUDP(args) {
			return o, &path.Error{What: "cover", Why: "covers over TCP and over UDP cannot share a link", Hint: "choose one of them"}
		}
		o.Datagrams = cover.OverUDP(args)
		c := Cover{Name: name}
		if c.Factory, err = cover.New(name, cover.Options{Seed: o.Line.Key[:], Life: life, Args: args}); err != nil {
			return o, err
		}
		if c.Share, err = cover.ShareOf(args); err != nil {
			return o, err
		}
		if slices.ContainsFunc(o.Covers, func(other Cover) bool { return other.Name == name }) {
			return o, &path.Error{What: "cover " + name, Why: "it is there twice", Hint: "give it a weight to have more connections of it, as " + name + ":weight=2"}
		}
		o.Covers = append(o.Covers, c)
	}
	o.Connections, o.Bytes = cmp.Or(b.Connections, connections(o.Covers)), life.Bytes
	err = o.complete()
	o.Paths = nil
	return o, err
}

// connections is how many a link has, so that no cover has more than in a link of its own, beside one.
func connections(covers []Cover) (n int) {
	all := 0
	for _, c := range covers {
		all += c.Weight
	}
	n = MaxConnections
	for _, c := range covers {
		n = min(n, cmp.Or(cover.Connections(c.Name), DefaultConnections)*all/c.Weight)
	}
	return max(n, len(covers))
}

// covers returns the covers that are used: those that were chosen, or those of the bridge line.
func (b Bridge) covers(l handshake.Line) (all []string) {
	for _, spec := range b.Cover {
		all = append(all, cover.Offered(spec, l.Covers...))
	}
	if len(all) == 0 { // a stranger's line names no file of this machine
		all = cover.Shared(cover.Chosen(l.Covers...)...)
	}
	if len(all) == 0 {
		all = []string{DefaultCover}
	}
	return all
}

// Carries returns what a path must carry for the covers.
func (b Bridge) Carries() path.Carries {
	if line, err := handshake.ParseLine(b.Line); err == nil {
		if _, args, err := cover.ParseSpec(b.covers(line)[0]); err == nil && cover.OverUDP(args) {
			return path.Datagrams
		}
	}
	return path.Streams
}

func (b Bridge) life() (cover.Life, error) {
	bytes, err := text.ParseSize(cmp.Or(b.MaxBytes, "0"))
	if err == nil && bytes > math.MaxUint32 {
		err = fmt.Errorf("%s is more than a connection can be limited to", b.MaxBytes)
	}
	if err != nil {
		return cover.Life{}, &path.Error{What: "max-bytes-per-connection", Why: err.Error(), Hint: "such as 15kB, or 0 for no limit"}
	}
	return cover.Life{Age: b.MaxAge, Bytes: bytes}, nil
}

// CheckFile fails if others may read a file whose bridge line holds a token.
func (b Bridge) CheckFile(file string) error {
	line, err := handshake.ParseLine(b.Line)
	if err != nil || len(line.Token) == 0 || runtime.GOOS == "windows" { // which has no permission bits
		return nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return &path.Error{What: file, Why: fmt.Sprintf("others may read it (mode %o), and it holds a token", mode), Hint: "chmod 600 " + file}
	}
	return nil
}
