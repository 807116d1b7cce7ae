// Package config turns heddle.toml into typed values, and says what is wrong with it: every problem at once, each with
// its line and a hint. A key has the name of the flag that says the same.
//
// Secrets do not belong in heddle.toml: keys stay in the wg-quick file that a table names.
//
// Do not use this package to read a wg-quick file, nor to start anything: it only reads.
package config

import (
	"time"

	"heddle/path"
	"heddle/split"
)

// Config is a heddle.toml.
type Config struct {
	// Paths are the keys before the first table: what each table has unless it says otherwise.
	Paths
	Ups    []Up          `toml:"up"`
	Splits []Split       `toml:"split"`
	Serves []StreamServe `toml:"serve"`
	Dials  []StreamDial  `toml:"dial"`
	Tables []Rule        `toml:"rule"`
}

// Paths say which ways out a session has and how it is split over them. The flags of `heddle up` and `heddle split` are
// the same.
type Paths struct {
	// Via are the paths, each NAME=KIND:ARG. In a table of heddle.toml, the NAME of a path before the first table will do.
	Via []string `toml:"via"`
	// Path are paths beside the schedule, written as those of Via: rules use them, and tunnels ride them.
	Path []string `toml:"path"`
	// Needs is what the paths must carry; nothing means datagrams, which sessions are split into.
	Needs path.Carries `toml:"-"`
	// HandshakeVia names the path that carries QUIC's handshake, alone; empty leaves it to the schedule.
	HandshakeVia string `toml:"handshake-via"`
	// Rules are WHEN=PATH each, such as "first 10p=office"; in heddle.toml they are [[rule]] tables.
	Rules []string `toml:"-"`
	// Secret says where secrets of paths are, NAME=FILE each.
	Secret []string `toml:"secret"`
	// Identity is the file of this device's key, for paths by overlay nodes; empty is this user's own.
	Identity string `toml:"identity"`
	// Schedule is "round-robin", "uniform" or "weighted".
	Schedule string `toml:"schedule"`
	// Every is the unit of the schedule, such as "100ms", "50p" (packets) or "none".
	Every string `toml:"every"`
	// Settle is how long the first unit of a session lasts at least.
	Settle time.Duration `toml:"settle"`
	// AtGaps lets a switch wait for a gap of so long in the traffic, for one unit at most; 0 switches at once.
	AtGaps time.Duration `toml:"at-gaps"`
	// Reorder puts in order what arrives by several paths, and holds it so long at most; 0 holds nothing.
	Reorder time.Duration `toml:"reorder"`
	// Alpha is the concentration of the Dirichlet distribution that weighted draws from; above 0.
	Alpha float64 `toml:"alpha"`
	// Seed makes the draws repeatable; nil draws from crypto/rand.
	Seed *uint64 `toml:"seed"`
	// MinPaths is how many healthy paths it takes to send at all; 0 means 2, or all where fewer are given.
	MinPaths int `toml:"min-paths"`
	// Degrade permits fewer healthy paths than MinPaths.
	Degrade bool `toml:"degrade"`
	// Capture is a directory that gets one pcapng file a path, or empty for none. What stands before the first table gets
	// a directory for each session in it.
	Capture string `toml:"capture"`
}

// Up is one WireGuard tunnel: an [[up]] table, or `heddle up`.
type Up struct {
	// Name names the tunnel in `heddle status` and `heddle down`; empty means the file's name without .conf.
	Name string `toml:"name"`
	// File is the wg-quick file.
	File string `toml:"file"`
	// KillSwitch keeps other traffic from leaving by the default route while a full tunnel is up.
	KillSwitch bool `toml:"kill-switch"`
	// Socks is where the tunnel is offered as SOCKS5 and HTTP CONNECT, HOST:PORT, instead of as a TUN device.
	Socks string `toml:"socks"`
	// SocksUsers is a file of those who may use that proxy, with a password; empty lets everybody.
	SocksUsers string `toml:"socks-users"`
	// MTU of the tunnel in bytes, or 0 to work it out.
	MTU int `toml:"mtu"`
	// NoHooks leaves PreUp, PostUp, PreDown and PostDown of the wg-quick file alone.
	NoHooks bool `toml:"no-hooks"`
	Paths
}

// Split is one relay: a [[split]] table, or `heddle split`.
type Split struct {
	// Name names the relay in `heddle status`; empty means split-PORT, with the port of Listen.
	Name string `toml:"name"`
	// Plane is what decides the path, one of [split.PlaneNames]; a further one is taken where the kernel refuses the first.
	Plane []string `toml:"plane"`
	// GSOOff has the kernel plane take runs of segments apart, so that packets can be counted.
	GSOOff bool `toml:"gso-off"`
	// Listen is where the UDP program sends to, HOST:PORT. Only the relay listens.
	Listen string `toml:"listen"`
	// To is the server, HOST:PORT.
	To string `toml:"to"`
	// Idle ends a session that carried nothing for so long.
	Idle time.Duration `toml:"idle"`
	// MaxSessions bounds the sessions at one time.
	MaxSessions int `toml:"max-sessions"`
	Paths
}

// Default gives what holds where neither a file nor a flag says otherwise.
func Default() Config { return Config{Paths: DefaultPaths()} }

// DefaultPaths are the defaults of the keys that tunnels and relays share. A weighted schedule hides the most of the
// three (CoMPS, section 5.1.1), and 100 ms costs WireGuard little throughput (section 6).
func DefaultPaths() Paths {
	return Paths{Schedule: "weighted", Every: "100ms", Alpha: 1}
}

// DefaultUp is a tunnel before anything is said about it, with the given shared keys.
func DefaultUp(p Paths) Up { return Up{KillSwitch: true, Paths: p} }

// DefaultSplit is a relay before anything is said about it, with the given shared keys.
func DefaultSplit(p Paths) Split {
	return Split{Plane: []string{split.DefaultPlane}, Idle: split.DefaultIdle, MaxSessions: split.DefaultMaxSessions, Paths: p}
}
