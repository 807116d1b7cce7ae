package pseudonym

import (
	"crypto/hmac"
	"crypto/sha256"
	"net/url"
)

// Link is a link from one site of a cloud to another one, by way of the cloud's linker (section 4.3 of the paper).
type Link struct {
	To   string // the URL, with the plain name of the site
	From Label  // the pseudonym by which the user came to the page that has the link
	MAC  string // that the page was made for the holder of that pseudonym, for this link
}

// Keys of a link in the query of its URL.
const (
	linkTo   = "to"
	linkFrom = "from"
	linkMAC  = "mac"
)

// NewLink makes the link in a page for a pseudonym. Its code proves the capability and does not tell it, since other sites see neither.
func NewLink(to string, from Label, c Capability) Link {
	return Link{to, from, linkCode(to, from, c)}
}

func linkCode(to string, from Label, c Capability) string {
	h := hmac.New(sha256.New, c[:])
	h.Write([]byte("heddle link\x00" + string(from) + "\x00" + to))
	return encoding.EncodeToString(h.Sum(nil)[:labelBytes])
}

// Proved reports whether the link was made with the capability of its pseudonym.
func (l Link) Proved(c Capability) bool {
	return hmac.Equal([]byte(l.MAC), []byte(linkCode(l.To, l.From, c)))
}

// URL returns where the link leads: to the linker of a zone.
func (l Link) URL(z Zone) string {
	query := url.Values{linkTo: {l.To}, linkFrom: {string(l.From)}, linkMAC: {l.MAC}}
	return (&url.URL{Scheme: "https", Host: z.Linker(), Path: "/", RawQuery: query.Encode()}).String()
}

// ParseLink reads the query of a link's URL. What is missing is empty.
func ParseLink(query url.Values) Link {
	return Link{query.Get(linkTo), Label(query.Get(linkFrom)), query.Get(linkMAC)}
}
