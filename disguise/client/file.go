package client

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"runtime"
	"time"

	"heddle/disguise/cover"
	"heddle/disguise/handshake"
	"heddle/internal/text"
	"heddle/path"
)

// Bridge is how to reach a bridge, and by which covers: a bridge.toml, or flags. The bridge line may hold a token, so it is no flag.
type Bridge struct {
	Line        string        `toml:"bridge"`
	Cover       string        `toml:"cover" help:"what the connections look like, <NAME[:SETTING=VALUE]>; what the bridge line names where it is not given"`
	Connections int           `toml:"connections" help:"how many connections carry a link at a time; 0 is 1 for each path with the cover https, 6 with http, and else 4"`
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
	name, args, err := cover.ParseSpec(b.cover(o.Line))
	if err != nil {
		return o, err
	}
	life, err := b.life()
	if err != nil {
		return o, err
	}
	o.Covers, err = cover.New(name, cover.Options{Seed: o.Line.Key[:], Life: life, Args: args})
	o.Connections, o.Bytes, o.Datagrams = cmp.Or(b.Connections, cover.Connections(name)), life.Bytes, cover.OverUDP(args)
	if err == nil {
		err = o.complete()
	}
	o.Paths = nil
	return o, err
}

// cover returns the cover that is used: the one that was chosen, or the first that the bridge has.
func (b Bridge) cover(l handshake.Line) string {
	if b.Cover != "" {
		return cover.Offered(b.Cover, l.Covers...)
	}
	if len(l.Covers) > 0 {
		return cover.Shared(l.Covers[0])[0] // a stranger's line names no file of this machine
	}
	return DefaultCover
}

// Carries returns what a path must carry for the cover.
func (b Bridge) Carries() path.Carries {
	if line, err := handshake.ParseLine(b.Line); err == nil {
		if _, args, err := cover.ParseSpec(b.cover(line)); err == nil && cover.OverUDP(args) {
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
