package web

import "strings"

// Browser says how to import certificates. A step may not name the files: there may be one or two.
type Browser struct {
	Name, Title string
	Steps       []string
}

// Browsers are those that can show certificates.
var Browsers = []Browser{
	{"firefox", "Firefox", []string{
		"Open Settings, Privacy & Security, Certificates, View Certificates.",
		"Under Your Certificates choose Import, and give the passphrase.",
		"Under Authorities choose Import, open the certificate of the cloud, and let it identify websites."}},
	{"linux", "Chrome, Chromium or Edge on Linux", []string{
		"Open chrome://certificate-manager.",
		"Under Your certificates view the imported ones, choose Import, and give the passphrase.",
		"Under Local certificates, Custom, Installed by you, import the certificate of the cloud as trusted."}},
	{"windows", "Chrome or Edge on Windows", []string{
		"Open the saved file, choose Current User, and give the passphrase.",
		"Open the certificate of the cloud, choose Install Certificate, Current User, and the store Trusted Root Certification Authorities.",
		"Start the browser again."}},
	{"mac", "Safari, Chrome or Edge on a Mac", []string{
		"Open the saved file. Keychain Access takes it into the keychain login, and asks for the passphrase.",
		"Open the certificate of the cloud, double-click it in Keychain Access, and choose Always Trust.",
		"Start the browser again."}},
	{"ios", "Safari on an iPhone or iPad; other browsers there cannot show certificates", []string{
		"Open the saved file, then Settings, Profile Downloaded, Install, and give the passphrase.",
		"Do the same with the certificate of the cloud.",
		"In Settings, General, About, Certificate Trust Settings, turn the cloud's certificate on."}},
	{"android", "Chrome on Android", []string{
		"Open Settings and look for Install a certificate. Choose VPN & app user certificate, open the saved file, and give the passphrase.",
		"Choose CA certificate, and open the certificate of the cloud."}},
}

// BrowserOf guesses a browser by the header User-Agent. It returns an empty name for others.
func BrowserOf(agent string) string {
	has := func(part string) bool { return strings.Contains(agent, part) }
	switch {
	case has("iPhone"), has("iPad"):
		return "ios"
	case has("Firefox/"):
		return "firefox"
	case has("Android"):
		return "android"
	case has("Windows"):
		return "windows"
	case has("Macintosh"):
		return "mac"
	case has("Linux"), has("CrOS"):
		return "linux"
	}
	return ""
}
