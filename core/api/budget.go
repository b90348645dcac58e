package api

import (
	"regexp"
	"time"
)

// Period is what a budget is for. Hours, days, weeks from Monday on, and months are those of UTC.
type Period string

// The periods.
const (
	PeriodHour  Period = "hour"
	PeriodDay   Period = "day"
	PeriodWeek  Period = "week"
	PeriodMonth Period = "month"
)

// Budget is what pods of a namespace may cost at peers, and how that stands.
type Budget struct {
	Amount   string             `json:"amount"` // a decimal number
	Currency string             `json:"currency"`
	Period   Period             `json:"period"`
	State    BudgetState        `json:"state,omitempty"` // "" while it is not known
	Spent    string             `json:"spent,omitempty"`
	Since    time.Time          `json:"since,omitzero"`
	Until    time.Time          `json:"until,omitzero"`
	Closed   List[BudgetClosed] `json:"closed,omitempty"` // peers to which no more pods go
}

// BudgetState says how far a budget is spent.
type BudgetState string

// The states.
const (
	BudgetWithin BudgetState = "within"
	BudgetNearly BudgetState = "nearly" // four fifths of it
	BudgetSpent  BudgetState = "spent"
)

// BudgetClosed is a peer to which a budget lets no more pods go.
type BudgetClosed struct {
	Peer   string       `json:"peer"`
	Reason ClosedReason `json:"reason"`
}

// ClosedReason says why.
type ClosedReason string

// The reasons.
const (
	ClosedSpent         ClosedReason = "spent"
	ClosedOtherCurrency ClosedReason = "otherCurrency"
)

var budget = regexp.MustCompile(`^([0-9]{1,12}(?:\.[0-9]{1,9})?) ?([A-Za-z]{1,16})?/(hour|day|week|month)$`)

// ReadBudget reads a budget as people write it, "5 EUR/day". Without a currency, which is "" then, it is for the one of the prices there are.
// The error is an *Error with CodeInvalid that names field.
func ReadBudget(field, text string) (amount, currency string, period Period, err error) {
	m := budget.FindStringSubmatch(text)
	if m == nil {
		return "", "", "", Invalid(field, text, `an amount for an hour, day, week or month, such as "5 EUR/day" or 5/week`)
	}
	return m[1], m[2], Period(m[3]), nil
}

func (b *Budget) String() string { return b.Amount + " " + b.Currency + "/" + string(b.Period) }
