package sharing

import (
	"fmt"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/base/power"
	"kith.dev/core/base/thermal"
)

// MinIdle and MaxIdle bound spec.only.idleFor.
const (
	MinIdle = time.Minute
	MaxIdle = 24 * time.Hour
)

// IdleAllowed are the values of spec.only.idleFor, in words.
const IdleAllowed = "a duration from 1m to 24h"

// Laptop is how this machine is used at a moment. What is not known meets no condition: then less is offered, not more.
type Laptop struct {
	Power power.State
	// Heat is how hot it is.
	Heat thermal.State
	// IdleSince is since when nobody uses the desktop; zero: somebody does. IdleUnknown is why that is not known, for people; "" when it is.
	IdleSince   time.Time
	IdleUnknown string
	// Metered: the network is paid for by the amount. MeteredUnknown is why that is not known, for people; "" when it is.
	Metered        bool
	MeteredUnknown string
}

// unmet says which of the policy's conditions on this machine is not met; nil when all are.
func (in *OfferInput) unmet() *Refusal {
	only := in.Policy.Spec.Only
	if only == nil {
		return nil
	}
	no := func(why api.NoOffer, format string, args ...any) *Refusal {
		return &Refusal{Why: why, Reason: fmt.Sprintf("SharingPolicy %s offers something ", in.Policy.Name) + fmt.Sprintf(format, args...)}
	}
	is := in.Laptop
	switch battery := is.Power.Battery; {
	case only.OnMains && !is.Power.OnMains:
		return no(api.NoOfferOnBattery, "on mains alone, and this laptop runs on its battery")
	case only.BatteryAbove > 0 && battery != power.None && battery <= int(only.BatteryAbove):
		return no(api.NoOfferBattery, "while the battery is above %d%% alone", only.BatteryAbove)
	}
	if only.Cool {
		switch {
		case is.Heat.Unknown != "":
			return no(api.NoOfferNotKnown, "while this laptop is cool alone, and whether it is is not known: %s", is.Heat.Unknown)
		case is.Heat.Hot != "":
			return no(api.NoOfferHot, "while this laptop is cool alone, and %s", is.Heat.Hot)
		}
	}
	if only.IdleFor != nil {
		switch after := api.Span(only.IdleFor.Duration); {
		case is.IdleUnknown != "":
			return no(api.NoOfferNotKnown, "when nobody has used this laptop for %s alone, and whether somebody does is not known: %s", after, is.IdleUnknown)
		case is.IdleSince.IsZero() || in.Now.Sub(is.IdleSince) < only.IdleFor.Duration:
			return no(api.NoOfferInUse, "when nobody has used this laptop for %s alone, and its owner is at it, or was a moment ago", after)
		}
	}
	if only.NotMetered {
		switch {
		case is.MeteredUnknown != "":
			return no(api.NoOfferNotKnown, "where the network is not paid for by the amount alone, and whether it is is not known: %s", is.MeteredUnknown)
		case is.Metered:
			return no(api.NoOfferMetered, "where the network is not paid for by the amount alone, and it is")
		}
	}
	return nil
}
