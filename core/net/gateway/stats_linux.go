package gateway

import (
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

func (w *wireguard) stats() map[Key]Stats {
	text, err := w.dev.IpcGet()
	if err != nil {
		return nil
	}
	return parseStats(text)
}

func (w *wireguard) endpoints() map[Key]netip.AddrPort {
	out := map[Key]netip.AddrPort{}
	for k, s := range w.stats() {
		if s.Endpoint.IsValid() {
			out[k] = s.Endpoint
		}
	}
	return out
}

// parseStats reads WireGuard's configuration protocol: lines of key=value, a peer begins with its public key.
func parseStats(text string) map[Key]Stats {
	out := map[Key]Stats{}
	var key Key
	var s Stats
	var sec, nsec int64
	flush := func() {
		if key.IsZero() {
			return
		}
		if sec != 0 || nsec != 0 {
			s.LastHandshake = time.Unix(sec, nsec)
		}
		out[key] = s
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "public_key":
			flush()
			key, s, sec, nsec = Key{}, Stats{}, 0, 0
			if b, err := hex.DecodeString(value); err == nil && len(b) == len(key) {
				key = Key(b)
			}
		case "endpoint":
			s.Endpoint, _ = netip.ParseAddrPort(value)
		case "last_handshake_time_sec":
			sec, _ = strconv.ParseInt(value, 10, 64)
		case "last_handshake_time_nsec":
			nsec, _ = strconv.ParseInt(value, 10, 64)
		case "rx_bytes":
			s.Received, _ = strconv.ParseUint(value, 10, 64)
		case "tx_bytes":
			s.Sent, _ = strconv.ParseUint(value, 10, 64)
		}
	}
	flush()
	return out
}
