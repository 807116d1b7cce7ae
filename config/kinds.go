package config

// Path kinds outside of package path. Each registers itself.
import (
	_ "heddle/overlay/client"
	_ "heddle/path/masque"
	_ "heddle/path/socks5"
	_ "heddle/path/wireguard"
)
