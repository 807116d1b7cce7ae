package config

// Path kinds outside of package path, and covers. Each registers itself.
import (
	_ "heddle/disguise/cover/embed"
	_ "heddle/disguise/cover/random"
	_ "heddle/disguise/cover/web"
	_ "heddle/overlay/client"
	_ "heddle/path/masque"
	_ "heddle/path/socks5"
	_ "heddle/path/wireguard"
)
