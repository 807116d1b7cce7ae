package cover

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"heddle/path"
)

// ParseSpec parses the name of a cover and its settings: NAME, or NAME:SETTING=VALUE:SETTING=VALUE.
func ParseSpec(text string) (name string, args map[string]string, err error) {
	name, rest, more := strings.Cut(text, ":")
	for more {
		var pair string
		pair, rest, more = strings.Cut(rest, ":")
		setting, value, ok := strings.Cut(pair, "=")
		if _, twice := args[setting]; !ok || setting == "" || value == "" || twice {
			return "", nil, &path.Error{What: fmt.Sprintf("cover %q", text), Why: fmt.Sprintf("%q is no setting, or there twice", pair),
				Hint: "write NAME, or NAME:SETTING=VALUE, such as random:prefix=printable"}
		}
		if args == nil {
			args = map[string]string{}
		}
		args[setting] = value
	}
	return name, args, nil
}

// transport is the setting of kinds that replay over TCP and over UDP.
const transport = "transport"

// Settings of every kind.
const (
	port   = "port"
	weight = "weight"
)

var common = map[string]string{
	port:   "the port of the bridge that has the cover, if it is not that of its address",
	weight: "how many of a link's connections have the cover, relative to other covers of the link",
}

// Specs are covers in a file, where one of them needs no list.
type Specs []string

// Share is how a cover shares a bridge, and a link, with others.
type Share struct {
	Port   uint16 // of the bridge; 0 is that of its address
	Weight int    // at least 1
}

// mostWeight bounds the weight of a cover.
const mostWeight = 1000

// ShareOf reads the settings that every kind has.
func ShareOf(args map[string]string) (s Share, err error) {
	s.Weight = 1
	if text, set := args[port]; set {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 || OverUDP(args) {
			return s, &path.Error{What: "cover setting port", Why: fmt.Sprintf("%q is no port that a cover can have", text), Hint: "1 to 65535, for a cover over TCP"}
		}
		s.Port = uint16(n)
	}
	if text, set := args[weight]; set {
		if s.Weight, err = strconv.Atoi(text); err != nil || s.Weight < 1 || s.Weight > mostWeight {
			return s, &path.Error{What: "cover setting weight", Why: fmt.Sprintf("%q is no weight", text), Hint: fmt.Sprintf("a whole number from 1 to %d", mostWeight)}
		}
	}
	return s, nil
}

// Chosen returns the covers that a client uses of a bridge line: the ones to which it gives a weight, or else the first one.
func Chosen(offered ...string) (chosen []string) {
	for _, spec := range offered {
		if _, args, err := ParseSpec(spec); err == nil && args[weight] != "" {
			chosen = append(chosen, spec)
		}
	}
	if len(chosen) == 0 {
		return offered[:min(1, len(offered))]
	}
	return chosen
}

// OverUDP reports whether the settings of a cover ask for datagrams.
func OverUDP(args map[string]string) bool { return args[transport] == "udp" }

// Offered adds to a client's specification what a bridge line offers for the same cover, where the client has no setting of its own.
func Offered(own string, offered ...string) string {
	name, args, err := ParseSpec(own)
	k := slices.IndexFunc(Kinds(), func(k Kind) bool { return k.Name == name })
	if err != nil || k < 0 {
		return own
	}
	for _, spec := range offered {
		other, theirs, err := ParseSpec(spec)
		if err != nil || other != name || OverUDP(theirs) != OverUDP(args) {
			continue
		}
		for _, setting := range append([]string{port, weight}, Kinds()[k].Offered...) {
			if value, set := theirs[setting]; set && args[setting] == "" {
				own += ":" + setting + "=" + value
			}
		}
		break
	}
	return own
}

// Shared returns the specifications for a bridge line: without settings that mean nothing on another machine.
func Shared(specs ...string) (shared []string) {
	for _, spec := range specs {
		shared = append(shared, settings(spec, func(k Kind, setting string) bool { return !slices.Contains(k.Local, setting) }))
	}
	return shared
}

// Needed returns what a client has to say of a bridge's cover, since no bridge line does, or "" if that is nothing.
func Needed(spec string) string {
	needed := settings(spec, func(k Kind, setting string) bool { return slices.Contains(k.Both, setting) })
	if !strings.Contains(needed, ":") {
		return ""
	}
	return needed
}

// settings returns a specification with some of its settings. One of an unknown kind is returned as it is.
func settings(spec string, keep func(k Kind, setting string) bool) string {
	parts := strings.Split(spec, ":")
	i := slices.IndexFunc(Kinds(), func(k Kind) bool { return k.Name == parts[0] })
	if i < 0 {
		return spec
	}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool {
		name, _, set := strings.Cut(part, "=")
		return set && !keep(Kinds()[i], name)
	}), ":")
}
