package main

import (
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
)

// ping asks an IPv4 address for an echo as ping(8) does first, with a socket for which nobody needs a capability, and says what came.
// raw does so with one that can carry any packet.
func ping(args []string) error { return echoRequest("udp4", args) }
func raw(args []string) error  { return echoRequest("ip4:icmp", args) }

func echoRequest(network string, args []string) error {
	host, err := one(args)
	if err != nil {
		return err
	}
	c, err := icmp.ListenPacket(network, "0.0.0.0")
	if err != nil {
		return err
	}
	defer c.Close()
	ask, err := (&icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: os.Getpid() & 0xffff, Seq: 1, Data: []byte("kith")}}).Marshal(nil)
	if err != nil {
		return err
	}
	var to net.Addr = &net.IPAddr{IP: net.ParseIP(host)}
	if strings.HasPrefix(network, "udp") {
		to = &net.UDPAddr{IP: net.ParseIP(host)}
	}
	if _, err := c.WriteTo(ask, to); err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(knock)); err != nil {
		return err
	}
	answer := make([]byte, 1500)
	n, from, err := c.ReadFrom(answer)
	if err != nil {
		return err
	}
	m, err := icmp.ParseMessage(ipv4.ICMPTypeEcho.Protocol(), answer[:n])
	if err != nil {
		return err
	}
	_, err = fmt.Println(m.Type, from)
	return err
}
