package menu

// Hold gives the menu that is open with what next says of its items, so that what a mouse is aimed at stays under it: nothing comes, goes or
// moves. What next has no more, or as a submenu that it was not, is there to be read.
func Hold(open, next []Item) []Item {
	now := map[string]Item{}
	index(now, next)
	return hold(open, now)
}

func index(all map[string]Item, items []Item) {
	for _, i := range items {
		all[i.ID] = i
		index(all, i.Items)
	}
}

func hold(open []Item, now map[string]Item) []Item {
	var held []Item
	for _, i := range open {
		is, still := now[i.ID]
		switch {
		case i.Separator():
		case !still || (len(is.Items) > 0) != (len(i.Items) > 0):
			i.Disabled, i.Items = true, hold(i.Items, now)
		default:
			is.Items = hold(i.Items, now)
			i = is
		}
		held = append(held, i)
	}
	return held
}
