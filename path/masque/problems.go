package masque

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"heddle/internal/errhint"
	"heddle/path"
)

// Pin returns the value for #sha256=: the SHA-256 of the certificate's public key in hexadecimal (RFC 7469, section 2.4).
func Pin(leaf *x509.Certificate) string {
	sum := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

var errPin = errors.New("its certificate has another key than the pinned one")

func (p *tunnel) verifyPin(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errPin
	}
	sum := sha256.Sum256(state.PeerCertificates[0].RawSubjectPublicKeyInfo)
	for _, pin := range p.pins {
		if subtle.ConstantTimeCompare(sum[:], pin[:]) == 1 {
			return nil
		}
	}
	return errPin
}

// hintedError is a failed handshake with a proxy that may have answered from another address.
type hintedError struct {
	error
	hint string
}

func (e *hintedError) Unwrap() error    { return e.error }
func (e *hintedError) HintText() string { return e.hint }

// explainDial explains a failed handshake. It does not wrap errors of quic-go, since these match net.ErrClosed.
func (p *tunnel) explainDial(remote netip.AddrPort, err error) error {
	if _, known := errors.AsType[*path.Error](err); known {
		return err
	}
	at := fmt.Sprintf("the proxy at %v", remote)
	var unreachable *path.Unreachable
	var transport *quic.TransportError
	switch {
	case errors.Is(err, errPin):
		return p.problem(at+": "+errPin.Error(), "compare the pin with what `heddle masque serve` prints; if nobody changed the key, somebody is in between")
	case errors.As(err, &unreachable):
		return p.problem(at+" cannot be reached: "+unreachable.Error(), "does it run, and does it listen on that port with UDP?")
	case isSilence(err):
		return p.problem(at+" does not answer", cmp.Or(errhint.Of(err), "does it run, and does the network let UDP to that port pass?"))
	case p.known != nil && errhint.Of(err) != "":
		return p.problem(at+" is another: "+textOf(err), errhint.Of(err))
	case errors.As(err, &transport) && transport.ErrorCode == alpnMissing:
		return p.problem(at+" does not speak HTTP/3", "is this the proxy's address?")
	case errors.As(err, &transport) && transport.ErrorCode.IsCryptoError():
		return p.problem(at+" cannot prove who it is: "+textOf(err), "correct the name, or pin the proxy's own certificate with #sha256=HEX")
	}
	return p.problem(at+": no connection: "+textOf(err), "")
}

// alpnMissing is the TLS alert no_application_protocol as a QUIC error (RFC 9001, section 4.8).
const alpnMissing = quic.TransportErrorCode(0x100 + 120)

// describeEnd returns why a connection or stream ended.
func describeEnd(err error) string {
	var idle *quic.IdleTimeoutError
	var application *quic.ApplicationError
	var h *http3.Error
	var reset *quic.StatelessResetError
	switch {
	case errors.As(err, &idle):
		return "the proxy fell silent"
	case errors.As(err, &reset):
		return "the proxy does not know of it any more"
	case errors.As(err, &h) && h.Remote && h.ErrorCode == http3.ErrCodeConnectError:
		return "the proxy cannot reach the target"
	case errors.As(err, &h) && h.ErrorCode == http3.ErrCodeNoError,
		errors.As(err, &application) && application.ErrorCode == quic.ApplicationErrorCode(http3.ErrCodeNoError):
		return "the proxy closed it"
	}
	return textOf(err)
}

func textOf(err error) string {
	if err == nil {
		return "for no reason given"
	}
	return err.Error()
}

// explainStatus explains the proxy's response, or returns nil for a success.
func (p *tunnel) explainStatus(to netip.AddrPort, response *http.Response, withSecret bool) error {
	code := response.StatusCode
	reason := proxyStatus(response.Header)
	switch {
	case code >= 200 && code < 300:
		return nil
	case p.known != nil:
		err := p.known.Refused(code, response.Header)
		return &path.Error{What: "path " + p.spec.Name, Why: fmt.Sprintf("the %s does not forward to %v", p.known.Noun, to), Err: err, Hint: errhint.Of(err)}
	case code == http.StatusUnauthorized || code == http.StatusProxyAuthRequired:
		if withSecret {
			return p.problem("the proxy does not take the password or token", "look into the file that --secret "+p.spec.Name+"=FILE names: USER:PASSWORD, or a token")
		}
		return p.problem("the proxy wants a password or token", "put USER:PASSWORD or a token into a file, and name it with --secret "+p.spec.Name+"=FILE")
	case code == http.StatusForbidden:
		return p.problem(fmt.Sprintf("the proxy does not forward to %v%s", to, reason), "its owner decides which targets are allowed")
	case code == http.StatusNotFound || code == http.StatusMethodNotAllowed || code == http.StatusBadRequest || code == http.StatusNotImplemented:
		return p.problem(fmt.Sprintf("the server proxies no UDP under this address (HTTP status %d%s)", code, reason), "its owner knows the URI template to write")
	case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
		e := p.problem(fmt.Sprintf("the proxy is busy, or has enough of us (HTTP status %d%s)", code, reason), "wait, or ask its owner for more flows")
		seconds, err := strconv.ParseUint(response.Header.Get("Retry-After"), 10, 16)
		if err != nil {
			return e
		}
		return &laterError{e, time.Duration(seconds) * time.Second}
	}
	return p.problem(fmt.Sprintf("the proxy cannot reach %v (HTTP status %d%s)", to, code, reason), "")
}

// proxyStatus returns the error of a Proxy-Status field (RFC 9209), as text to append.
func proxyStatus(h http.Header) string {
	for _, parameter := range strings.Split(h.Get("Proxy-Status"), ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		if name == "error" && value != "" && len(value) < 64 && strings.Trim(value, "abcdefghijklmnopqrstuvwxyz_") == "" {
			return ", " + value
		}
	}
	return ""
}
