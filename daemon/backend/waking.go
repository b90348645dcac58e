package backend

import (
	"fmt"
	"strings"

	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/net/wol"
)

// checkWaking tells whether peers that may wake this machine can.
func checkWaking(c *Cluster, report func(api.Finding)) {
	var by []string
	for _, p := range c.Client.Now().Policies {
		if sharing.Wake(&p) > 0 {
			by = append(by, p.Name)
		}
	}
	if len(by) == 0 || c.Waking == nil {
		return
	}
	devices, err := c.Waking.Devices()
	report(wakeable(by, devices, err))
}

// wakeable is about a machine that peers may wake by these policies, and its devices.
func wakeable(policies []string, devices []wol.Device, err error) api.Finding {
	f := api.Finding{Area: api.AreaDaemon, Name: "wake", State: api.CheckWarning, What: "peers may wake this machine, and none of its network devices is known to be armed for it"}
	var armed, says, arms []string
	for _, d := range devices {
		switch d.Arming {
		case wol.Armed:
			armed = append(armed, d.Name)
		case wol.NotArmed:
			arms = append(arms, "sudo ethtool -s "+d.Name+" wol g")
			says = append(says, d.Name+" could wake it, and is not armed")
		case wol.Cannot:
			says = append(says, d.Name+" cannot wake it, as its driver says")
		case wol.Unknown:
			if d.WiFi {
				arms = append(arms, "sudo iw dev "+d.Name+" info` tells its phy, and `sudo iw phy PHY wowlan enable magic-packet")
			}
			says = append(says, "of "+d.Name+" it is not known")
		}
	}
	take := fmt.Sprintf("kith share --policy %s --wake \"\"", policies[0])
	switch {
	case len(armed) > 0:
		f.State, f.What = api.CheckOK, "peers may wake this machine, by "+strings.Join(armed, ", ")
		return f
	case err != nil:
		f.Why = err.Error()
	case len(devices) == 0:
		f.Why = "it has none that is up on a network of IPv4"
	default:
		f.Why = strings.Join(says, "; ")
	}
	if f.Do = "take it away: `" + take + "`"; len(arms) > 0 {
		f.Do = "arm one: `" + strings.Join(arms, "`, `") + "` (until the next start; NetworkManager does it for good by `nmcli connection modify NAME 802-3-ethernet.wake-on-lan magic`)"
	}
	return f
}
