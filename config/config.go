// Package config reads heddle.toml into typed values, and reports every problem at once, each with its line and a hint.
// Keys are named like the flags.
//
// Secrets do not belong in heddle.toml: keys stay in the wg-quick file that a table names. This package does not read
// wg-quick files.
package config

import (
	"time"

	"heddle/overlay/client"
	"heddle/path"
	"heddle/proxy/users"
	"heddle/pseudonym/tenant"
	"heddle/pseudonym/tenant/defence"
	"heddle/schedule"
	"heddle/split"
)

// Config is a heddle.toml.
type Config struct {
	// Paths are the keys before the first table: the defaults of each table.
	Paths
	Ups    []Up          `toml:"up"`
	Splits []Split       `toml:"split"`
	Serves []StreamServe `toml:"serve"`
	Dials  []StreamDial  `toml:"dial"`
	Tables []Rule        `toml:"rule"`
}

// Paths are the paths of a session and how it is split over them, as in the flags of `heddle up` and `heddle split`.
type Paths struct {
	// Via are the paths, each NAME=KIND:ARG. A table of heddle.toml may use the NAME alone of a path before the first table.
	Via  []string `toml:"via" help:"a path, <NAME=KIND:ARG>, such as home=if:eth0; one flag a path" complete:"path"`
	Path []string `toml:"path" help:"a path beside the schedule, <NAME=KIND:ARG>, for rules to use and tunnels to ride" complete:"path"`
	// Needs is what the paths must carry; zero means datagrams, which sessions are split into.
	Needs        path.Carries `toml:"-"`
	HandshakeVia string       `toml:"handshake-via" help:"the <NAME> of the path that alone carries QUIC's handshake"`
	Rules        []string     `toml:"-" flag:"rule" help:"send what matches by one path, <WHEN=NAME>: \"first 10p=office\", \"first 3s=office\", \"port 53=office\""`
	Secret       []string     `toml:"secret" help:"the file that holds the password or token of a path, <NAME=FILE>"`
	// Identity is the file of this device's key, for paths by overlay nodes; empty is the user's own.
	Identity string        `toml:"identity" help:"the <FILE> of this device's private key, for paths by overlay nodes" complete:"file"`
	Schedule string        `toml:"schedule" help:"which path is next: {schedules}" complete:"schedules"`
	Every    string        `toml:"every" help:"how long a path is kept: a time (100ms), packets (50p), auto or none" complete:"100ms 500ms 50p 200p auto none"`
	Settle   time.Duration `toml:"settle" help:"keep the first path of a session so long at least"`
	AtGaps   time.Duration `toml:"at-gaps" help:"let a switch wait for a gap of so long in the traffic, for one unit at most"`
	Reorder  time.Duration `toml:"reorder" help:"put in order what arrives by several paths, and hold it so long at most"`
	Drain    time.Duration `toml:"drain" help:"after a switch of a QUIC download, hold what the client sends until the server follows, for so long at most"`
	Alpha    float64       `toml:"alpha" help:"concentration of the Dirichlet distribution that weighted draws from"`
	// Seed makes the draws repeatable; nil uses crypto/rand.
	Seed     *uint64 `toml:"seed" help:"make the draws repeatable (for experiments: whoever knows it knows the split)"`
	MinPaths int     `toml:"min-paths" help:"healthy paths it takes to send at all; 0 means 2, or all where fewer are given"`
	Degrade  bool    `toml:"degrade" help:"go on with fewer healthy paths than --min-paths"`
	// Capture is a directory for one pcapng file a path, or empty. Set before the first table, it has one subdirectory
	// a session.
	Capture string `toml:"capture" help:"write what leaves and arrives on each path to <DIR>, one pcapng file a path" complete:"dir"`
}

// Up is one WireGuard tunnel: an [[up]] table, or `heddle up`.
type Up struct {
	// Name is shown by `heddle status` and used by `heddle down`; empty means the file's name without .conf.
	Name string `toml:"name" help:"what the tunnel and its device are called; the file's name where this is not given"`
	// File is the wg-quick file.
	File       string     `toml:"file"`
	KillSwitch bool       `toml:"kill-switch" help:"keep what belongs in the tunnel, and with a full tunnel all else, from leaving outside it"`
	Socks      string     `toml:"socks" help:"offer the tunnel as a proxy on <HOST:PORT> instead of as a device"`
	SocksUsers users.File `toml:"socks-users" help:"let only the users in <FILE> use that proxy, with a password; heddle masque user add makes one"`
	MTU        int        `toml:"mtu" help:"MTU of the tunnel in bytes; 0 takes the file's, or works it out"`
	NoHooks    bool       `toml:"no-hooks" help:"do not run the file's PreUp, PostUp, PreDown and PostDown"`
	Paths
}

// Split is one relay: a [[split]] table, or `heddle split`.
type Split struct {
	// Name is shown by `heddle status`; empty means split-PORT, with the port of Listen.
	Name string `toml:"name" help:"what heddle status calls it; split-PORT where this is not given"`
	// Backend steers the packets, one of [split.BackendNames]; a further one is used if the kernel refuses the first.
	Backend []string `toml:"backend" old:"plane" help:"what decides the path: relay, kernel or route; a second one is taken where the kernel refuses the first" complete:"backends" list:"commas"`
	GSOOff  bool     `toml:"gso-off" help:"with --backend kernel, take runs of segments apart, so that packets can be counted"`
	// Listen is where the UDP program sends to, HOST:PORT. Only the backend relay listens.
	Listen      string        `toml:"listen" help:"where the program sends to, <HOST:PORT>"`
	To          string        `toml:"to" help:"the server, <HOST:PORT>"`
	Idle        time.Duration `toml:"idle" help:"end a session that carried nothing for so long"`
	MaxSessions int           `toml:"max-sessions" help:"how many client addresses are served at one time"`
	Paths
}

// Choices lists the words of a list for help texts and completion.
func Choices(list string) []string {
	return map[string][]string{
		"schedules":        schedule.Names(),
		"backends":         split.BackendNames(),
		"stripe-schedules": StripeSchedules(),
		"carriers":         StripeBackends(),
		"picks":            Picks(),
		"modes":            client.Modes(),
		"defences":         defence.Names(),
		"rewrites":         tenant.Rewrites(),
	}[list]
}

// Default returns the values that apply without a file or flags.
func Default() Config { return Config{Paths: DefaultPaths()} }

// DefaultPaths returns the defaults of the keys that tunnels and relays share. The schedule weighted hides the most (CoMPS,
// section 5.1.1), and 100 ms costs WireGuard little throughput (section 6).
func DefaultPaths() Paths {
	return Paths{Schedule: "weighted", Every: "100ms", Alpha: 1}
}

// DefaultUp is the default tunnel with the given shared keys.
func DefaultUp(p Paths) Up { return Up{KillSwitch: true, Paths: p} }

// DefaultSplit is the default relay with the given shared keys.
func DefaultSplit(p Paths) Split {
	return Split{Backend: []string{split.DefaultBackend}, Idle: split.DefaultIdle, MaxSessions: split.DefaultMaxSessions, Paths: p}
}
