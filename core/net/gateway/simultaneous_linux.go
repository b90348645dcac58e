package gateway

import (
	"bytes"
	"encoding/binary"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
)

// simultaneous settles handshakes that two peers begin at the same moment. WireGuard would answer the other's
// initiation and at the same time take the answer to its own; its workers do that in parallel on one state, and
// now and then end with a session registered under the wrong index: one direction is deaf until, after 15 seconds
// without an answer, a new handshake is tried. So one of the two initiations is ignored, the same at both ends:
// the one whose ephemeral key is lower.
type simultaneous struct {
	mu   sync.Mutex
	sent map[string]initiation // by endpoint
}

type initiation struct {
	at  time.Time
	key [32]byte
}

// window is longer than the difference between two workers and shorter than the way of a peering message, which
// makes the second peer begin after the first one's attempt was lost.
const window = 20 * time.Millisecond

// initiationKey returns the ephemeral key of a handshake initiation (WireGuard paper, section 5.4.2).
func initiationKey(b []byte) (key []byte, ok bool) {
	if len(b) != device.MessageInitiationSize || binary.LittleEndian.Uint32(b) != device.MessageInitiationType {
		return nil, false
	}
	return b[8:40], true
}

func (c *simultaneous) leaving(b []byte, to conn.Endpoint) {
	key, ok := initiationKey(b)
	if !ok {
		return
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for ep, i := range c.sent {
		if now.Sub(i.at) > window {
			delete(c.sent, ep)
		}
	}
	c.sent[to.DstToString()] = initiation{now, [32]byte(key)}
}

// loses tells whether an arriving initiation crossed one of ours that takes precedence.
func (c *simultaneous) loses(b []byte, from conn.Endpoint) bool {
	key, ok := initiationKey(b)
	if !ok {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ours, ok := c.sent[from.DstToString()]
	return ok && time.Since(ours.at) <= window && bytes.Compare(key, ours.key[:]) < 0
}
