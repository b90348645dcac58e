package lab

import (
	"fmt"
	"net"
	"regexp"
)

// Everyone is what laptops are called, in this order; after them come laptop07, laptop08 and so on.
var everyone = []string{"alice", "bob", "carol", "dave", "erin", "frank"}

// Most is how many laptops fit in one lab: their addresses share one /24. Of more than 90, some may find no other to move to.
const Most = 240

// lanName is the pseudo laptop that holds the LAN: exec works in it, which is where to watch packets.
const lanName = "lan"

// bridgeName is the bridge's interface in the LAN's namespace; the port of each laptop is named as the laptop.
const bridgeName = "br0"

// device is the laptop's only interface.
const device = "eth0"

// NameOf is the name of the i-th laptop, counted from 1.
func NameOf(i int) string {
	if i <= len(everyone) {
		return everyone[i-1]
	}
	return fmt.Sprintf("laptop%02d", i)
}

// indexOf is the inverse of NameOf; 0 for a name that is none.
func indexOf(name string) int {
	for i := 1; i <= Most; i++ {
		if NameOf(i) == name {
			return i
		}
	}
	return 0
}

// firstHost is where the i-th laptop is until it moves: alice .11, bob .12.
func firstHost(i int) byte { return byte(10 + i) }

// movedFirst to movedLast are the hosts a laptop can move to.
const movedFirst, movedLast = 101, 250

// hardwareAddress stays the same over reboots, as a real card's does, or the neighbours' ARP entries would be wrong.
func hardwareAddress(i int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 'k', 'i', 't', 'h', byte(i)}
}

var labName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,19}$`)

func checkLabName(name string) error {
	if !labName.MatchString(name) {
		return fmt.Errorf("lab name %q: use up to 20 lower-case letters, digits and dashes, a letter first", name)
	}
	return nil
}
