package cover

import (
	"fmt"
	"slices"
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
		for _, setting := range Kinds()[k].Offered {
			if value, set := theirs[setting]; err == nil && other == name && set && args[setting] == "" {
				return own + ":" + setting + "=" + value
			}
		}
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
