package tenant

import (
	_ "embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"heddle/pseudonym"
)

//go:embed nginx.conf.tmpl
var nginxTemplate string

// replaced are headers of the site's server that have another value, or are dropped if their value does not fit.
var replaced = []string{"Cross-Origin-Resource-Policy", "Referrer-Policy", "Strict-Transport-Security", "Clear-Site-Data", "Link", "Location"}

// nginxWithin is what a URL begins with that leads to the pseudonym: its name, or a path. nginx has matched the name before.
const nginxWithin = `(?:https://\k<heddle_own>(?=[/?#]|$)|(?!//)(?![^/?#]*:))`

// config returns what nginx.conf includes.
func (n *Nginx) config() string {
	var gateways, links, seals, hidden, ends, endSets, endCookies strings.Builder
	for _, g := range n.o.Gateways {
		fmt.Fprintf(&gateways, "set_real_ip_from %s;\n\t", g)
	}
	for _, end := range []string{"/", `"`, ")", "?", "#", " ", ">", ":443"} { // of a host in a URL
		fmt.Fprintf(&links, "sub_filter '//%s%s' '//$ssl_server_name%[2]s';\n\t\t", n.at.Site, end)
	}
	for _, key := range slices.Sorted(maps.Keys(sealed)) {
		fmt.Fprintf(&seals, "add_header %s %s always; ", key, sealed[key])
	}
	for _, key := range slices.Concat(permits, dropped, replaced) {
		fmt.Fprintf(&hidden, "proxy_hide_header %s;\n\t\t", key)
	}
	for i := range mostEnds {
		fmt.Fprintf(&ends, "map $upstream_http_clear_site_data $heddle_ended_%d {\n\tdefault \"\";\n\t~*\"cookies\"|\\* $heddle_end_%[1]d;\n}\n", i)
		fmt.Fprintf(&endSets, "auth_request_set $heddle_end_%d $upstream_http_heddle_end_%[1]d;\n\t\t", i)
		fmt.Fprintf(&endCookies, "add_header Set-Cookie $heddle_ended_%d always;\n\t\t", i)
	}
	listen, listenV6 := strings.TrimPrefix(n.at.Listen, ":"), n.at.ListenV6
	if strings.HasPrefix(listenV6, ":") {
		listenV6 = "[::]" + listenV6 // by a port alone nginx means IPv4
	}
	direct := func(what string) string {
		if listenV6 == "" {
			return ""
		}
		return fmt.Sprintf("listen %s ssl %s;\n\t", listenV6, what)
	}
	return strings.NewReplacer(
		"{{host}}", n.o.To.Host, "{{scheme}}", n.o.To.Scheme,
		"{{dir}}", n.at.Dir, "{{listen}}", listen, "{{listen v6 default}}", direct("default_server"), "{{listen v6}}", direct("http2"),
		"{{zone pattern}}", regexp.QuoteMeta(string(n.o.Zone)),
		"{{site}}", n.at.Site, "{{site pattern}}", regexp.QuoteMeta(n.at.Site),
		"{{within}}", nginxWithin, "{{key}}", pseudonym.CapabilityKey,
		"{{gateways}}", gateways.String(), "{{links}}", links.String(),
		"{{sealed}}", strings.TrimSpace(seals.String()), "{{hidden}}", hidden.String(),
		"{{ends}}", ends.String(), "{{end sets}}", endSets.String(), "{{end cookies}}", endCookies.String(),
	).Replace(nginxTemplate)
}
