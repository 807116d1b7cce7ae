package zone

import (
	"context"
	"encoding/base64"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"heddle/internal/errhint"
)

// Key signs updates of another nameserver (TSIG, RFC 8945).
type Key struct{ name, algorithm, secret string }

var (
	// keyClause is what tsig-keygen of BIND prints.
	keyClause = regexp.MustCompile(`(?s)key\s+"?([^"\s{]+)"?\s*\{\s*algorithm\s+"?([^"\s;]+)"?\s*;\s*secret\s+"?([^"\s;]+)"?\s*;\s*\}\s*;`)
	// keyLine is what nsupdate -y and knsupdate -k take, and keymgr of Knot prints behind a #.
	keyLine = regexp.MustCompile(`(?m)^#?\s*([^:\s#]+):([^:\s]+):(\S+)$`)
)

// ReadKey reads a file that has a key: as BIND has it in its configuration, or ALGORITHM:NAME:SECRET.
func ReadKey(file string) (Key, error) {
	refuse := func(why string, err error) (Key, error) {
		return Key{}, &errhint.Error{What: "the key in " + file, Why: why, Hint: "tsig-keygen NAME makes one", Err: err}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return refuse("it cannot be read", err)
	}
	k := Key{}
	if m := keyClause.FindSubmatch(text); m != nil {
		k = Key{string(m[1]), string(m[2]), string(m[3])}
	} else if m := keyLine.FindSubmatch(text); m != nil {
		k = Key{string(m[2]), string(m[1]), string(m[3])}
	} else {
		return refuse("it is no key of BIND and not ALGORITHM:NAME:SECRET", nil)
	}
	k.name, k.algorithm = dns.CanonicalName(k.name), dns.CanonicalName(k.algorithm)
	if !slices.Contains([]string{dns.HmacSHA256, dns.HmacSHA384, dns.HmacSHA512}, k.algorithm) {
		return refuse("its algorithm is none of hmac-sha256, hmac-sha384 and hmac-sha512", nil)
	}
	if secret, err := base64.StdEncoding.DecodeString(k.secret); err != nil || len(secret) < 16 {
		return refuse("its secret is damaged or shorter than 16 bytes", nil)
	}
	return k, nil
}

// updateFor bounds an update.
const updateFor = 10 * time.Second

// Update replaces the addresses and HTTPS records of the zone at another nameserver, HOST:PORT, at once (RFC 2136). That server has its own
// SOA and NS records, and signs the zone.
func (s *Server) Update(ctx context.Context, server string, k Key) error {
	m := new(dns.Msg).SetUpdate(s.apex)
	c := s.content.Load()
	for _, label := range append(slices.Clone(s.o.Own), "*") {
		name := label + "." + s.apex
		for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS} {
			m.RemoveRRset([]dns.RR{&dns.ANY{Hdr: header(name, kind, 0)}})
			m.Insert(renamed(c.sets[name][kind], name))
		}
	}
	m.SetTsig(k.name, k.algorithm, 300, time.Now().Unix())
	ctx, cancel := context.WithTimeout(ctx, updateFor)
	defer cancel()
	r, _, err := (&dns.Client{Net: "tcp", Timeout: updateFor, TsigSecret: map[string]string{k.name: k.secret}}).ExchangeContext(ctx, m, server)
	if err != nil {
		return &errhint.Error{What: "the nameserver " + server, Why: "it takes no update", Hint: "check its address, that it has the zone " + strings.TrimSuffix(s.apex, ".") + ", and that its key " + strings.TrimSuffix(k.name, ".") + " is this one", Err: err}
	}
	if r.Rcode != dns.RcodeSuccess {
		return &errhint.Error{What: "the nameserver " + server, Why: "it answers " + dns.RcodeToString[r.Rcode],
			Hint: "let the key " + strings.TrimSuffix(k.name, ".") + " update the zone " + strings.TrimSuffix(s.apex, ".") + " there"}
	}
	return nil
}
