package config

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"heddle/path"
	"heddle/path/wgconf"
	"heddle/split"
)

// validate checks the meaning of the values.
func validate(c Config, doc *document, here bool) {
	v := &validator{document: doc, config: c, here: here, names: map[string]string{}, seen: map[string]string{}}
	v.paths(c.Paths, "")
	var used []string
	for i, u := range c.Ups {
		v.up(u, fmt.Sprintf("up[%d].", i))
		used = append(used, u.used()...)
	}
	for i, s := range c.Splits {
		v.split(s, fmt.Sprintf("split[%d].", i))
		used = append(used, s.used()...)
	}
	for i, s := range c.Serves {
		v.stream(s.problems(), s, fmt.Sprintf("serve[%d].", i))
	}
	for i, d := range c.Dials {
		v.dial(d, fmt.Sprintf("dial[%d].", i))
		used = append(used, d.used()...)
	}
	if len(c.Ups)+len(c.Splits)+len(c.Serves)+len(c.Dials) == 0 {
		if len(v.problems) > 0 {
			return // such as a table that is not written as one
		}
		v.at("", SeverityError, "nothing to run", "add an [[up]] table with a file, a [[split]] table with listen and to, a [[serve]] or a [[dial]] table")
		return
	}
	for i, name := range namesOf(c.Via) {
		if !slices.Contains(used, name) {
			v.at(fmt.Sprintf("via[%d]", i), SeverityWarning, fmt.Sprintf("path %s is not used", name),
				"name it in the via of a table, or leave it out")
		}
	}
}

// senders returns the names of the paths that a session sends by.
func (p Paths) senders() []string {
	names := append(namesOf(p.Via), p.HandshakeVia)
	for _, text := range p.Rules {
		names = append(names, text[strings.LastIndexByte(text, '=')+1:])
	}
	return names
}

// used adds the paths that others ride.
func (p Paths) used() []string {
	names := p.senders()
	for _, text := range slices.Concat(p.Via, p.Path) {
		if spec, err := path.ParseSpec(text); err == nil {
			names = append(names, spec.Base)
		}
	}
	return names
}

type validator struct {
	*document
	config Config
	here   bool              // check this machine's interfaces too
	names  map[string]string // session name to its table
	seen   map[string]string // capture directory to its session
}

// at reports at the place of the key, or else of its table.
func (v *validator) at(key, severity, what, hint string) {
	if v.wrongs[key] {
		return
	}
	where, known := v.places[key]
	if table, _, found := strings.Cut(key, "."); !known && found {
		where = v.places[table+"."]
	}
	v.report(where, severity, key, what, hint)
}

func (v *validator) error(key, what, hint string) { v.at(key, SeverityError, what, hint) }

func (v *validator) fail(key string, err error) {
	if err != nil {
		what, hint := explain(err)
		v.error(key, what, hint)
	}
}

// written reports whether the key is in the file itself; without a file, all are.
func (v *validator) written(key string) bool {
	_, is := v.places[key]
	return is || v.places == nil
}

// paths checks the shared keys where they are written: keys before the first table are reported once, there.
func (v *validator) paths(p Paths, prefix string) {
	top := prefix == ""
	for _, f := range p.findings() {
		noPath := f.key == "via" && f.index < 0
		tooMany := f.key == "min-paths" && v.written(prefix+"via")
		switch {
		case noPath && (top || v.wrongs["via"]): // tables may have their own; or it is reported
			continue
		case !top && !noPath && !tooMany && !v.written(prefix+f.key):
			continue
		}
		key, severity := prefix+f.key, SeverityError
		if f.warning {
			severity = SeverityWarning
		}
		if f.index >= 0 {
			key = fmt.Sprintf("%s[%d]", key, f.index)
			switch {
			case f.key == "via":
				f = v.byName(f, p.Via[f.index], top)
			case f.key == "rule" && top:
				key += "." // its own table
			}
		}
		v.at(key, severity, f.what, f.hint)
	}
	v.ready(p.Via, prefix)
}

// ready warns of paths that cannot send now. This is no error: an interface may appear later.
func (v *validator) ready(via []string, prefix string) {
	if !v.here {
		return
	}
	for i, text := range via {
		spec, err := path.ParseSpec(text)
		if err != nil || !v.written(prefix+"via") {
			continue
		}
		key := fmt.Sprintf("%svia[%d]", prefix, i)
		way, err := path.New(spec, path.Options{})
		if err != nil {
			continue // it is reported
		}
		if info := way.Describe(); !info.Ready {
			v.at(key, SeverityWarning, fmt.Sprintf("path %s cannot send now: %s", spec.Name, info.Why), info.Hint)
		}
	}
}

// byName explains a path that a table gives by an unknown name.
func (v *validator) byName(f finding, text string, top bool) finding {
	if top || strings.Contains(text, "=") || len(v.config.Via) == 0 {
		return f
	}
	f.what = fmt.Sprintf("no path before the first table is called %q", text)
	f.hint = "paths: " + strings.Join(namesOf(v.config.Via), ", ") + "; or write NAME=KIND:ARG"
	return f
}

// The smallest MTU that every host accepts (RFC 791), and the largest that WireGuard over IPv6 leaves of an IP packet.
const (
	leastMTU   = 576
	largestMTU = 65535 - 80
)

func (v *validator) up(u Up, prefix string) {
	v.paths(u.Paths, prefix)
	if u.File == "" {
		v.error(prefix+"file", "file is missing", `the wg-quick file, such as file = "office.conf"`)
	} else {
		_, err := wgconf.Load(u.File)
		v.fail(prefix+"file", err)
	}
	v.name(u.SessionName(), u.Capture, prefix)
	if u.HandshakeVia != "" && v.written(prefix+"handshake-via") {
		v.error(prefix+"handshake-via", "a tunnel's packets are WireGuard's, which have no QUIC handshake",
			`a [[split]] table takes it; for a tunnel's first packets there is the rule "first 10p"`)
	}
	if err := checkSocksUsers(u.Socks, u.SocksUsers); err != nil {
		what, hint := explainFlat(err)
		v.error(prefix+"socks-users", what, hint)
	}
	switch name := u.SessionName(); {
	case u.Socks != "":
		v.hostPort(u.Socks, prefix+"socks", true)
	case len(name) > wgconf.MaxDeviceName:
		v.error(prefix+"name", fmt.Sprintf("%s is too long for a network device", name),
			fmt.Sprintf("give a name of at most %d bytes", wgconf.MaxDeviceName))
	}
	if u.MTU != 0 && (u.MTU < leastMTU || u.MTU > largestMTU) {
		v.error(prefix+"mtu", fmt.Sprintf("%d is no MTU of a tunnel", u.MTU),
			fmt.Sprintf("%d to %d bytes; leave it out to have it worked out", leastMTU, largestMTU))
	}
}

func (v *validator) split(s Split, prefix string) {
	v.paths(s.Paths, prefix)
	v.backend(s, prefix)
	if s.To == "" {
		v.error(prefix+"to", "to is missing", `the server, such as to = "vpn.example.com:51820"`)
	} else {
		v.hostPort(s.To, prefix+"to", false)
	}
	v.name(s.SessionName(), s.Capture, prefix)
	if s.Idle < time.Second {
		v.error(prefix+"idle", fmt.Sprintf("%v is too short", s.Idle), "a second or more, such as 5m")
	}
	if s.MaxSessions < 1 {
		v.error(prefix+"max-sessions", fmt.Sprintf("%d is less than 1", s.MaxSessions), "leave it out for the default")
	}
}

func (v *validator) backend(s Split, prefix string) {
	relay := slices.Contains(s.Backend, "relay")
	switch {
	case s.Listen != "":
		v.hostPort(s.Listen, prefix+"listen", true)
	case relay:
		v.error(prefix+"listen", "listen is missing", `where the program sends to, such as listen = "127.0.0.1:51820"`)
	}
	if len(s.Backend) == 0 {
		v.error(prefix+"backend", "no backend is given", "backends: "+strings.Join(split.BackendNames(), ", "))
	}
	for i, name := range s.Backend {
		v.fail(fmt.Sprintf("%sbackend[%d]", prefix, i), oneOf("backend", name, split.BackendNames()))
	}
}

func (v *validator) name(name, capture, prefix string) {
	if name == "" {
		return // its inputs are missing, and reported
	}
	if other, taken := v.seen[capture]; taken && capture != "" {
		v.error(prefix+"capture", fmt.Sprintf("%s captures to %s too", other, capture), "give each session a directory of its own")
	}
	v.seen[capture] = name
	if err := CheckSessionName(name); err != nil {
		v.fail(prefix+"name", err)
		return
	}
	if other, taken := v.names[name]; taken {
		v.error(prefix+"name", fmt.Sprintf("two tables are called %s (the other is %s)", name, other), "give one of them another name")
		return
	}
	v.names[name] = strings.TrimSuffix(prefix, ".")
}

// hostPort checks HOST:PORT; port 0 listens on any free port. It warns of listeners that others can reach.
func (v *validator) hostPort(text, key string, listens bool) {
	host, port, err := net.SplitHostPort(text)
	if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || !listens && (n == 0 || host == "") {
		v.error(key, fmt.Sprintf("%q is not HOST:PORT", text), "such as 127.0.0.1:51820, [::1]:51820 or vpn.example.com:51820")
		return
	}
	if listens {
		v.exposed(text, key)
	}
}

// exposed warns of listeners beyond loopback.
func (v *validator) exposed(text, key string) {
	host, _, err := net.SplitHostPort(text)
	ip := net.ParseIP(host)
	if err == nil && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		v.at(key, SeverityWarning, fmt.Sprintf("%s can be reached from other machines", text), "listen on 127.0.0.1 unless that is meant")
	}
}
